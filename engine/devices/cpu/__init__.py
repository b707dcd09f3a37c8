"""Kernels for processors, compiled by Numba, and the threads that run them."""
