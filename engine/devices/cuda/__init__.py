"""Kernels for CUDA devices, and the memory, streams and copies around them."""
