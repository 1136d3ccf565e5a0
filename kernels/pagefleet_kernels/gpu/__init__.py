"""Triton kernels, each in a wrapper that takes what its reference one folder up takes."""
