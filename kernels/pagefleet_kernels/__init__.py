"""Attention and cache kernels, each beside a plain-torch reference of the same signature."""
