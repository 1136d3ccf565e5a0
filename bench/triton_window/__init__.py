"""Check the kernels on every version of Triton that the engine may meet."""
