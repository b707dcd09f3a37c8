"""Benchmarks of single kernels and of whole solves on a device."""
