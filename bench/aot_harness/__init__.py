"""Compile Triton kernels for GPUs that are not here, and read what the result promises."""
