"""Kernels against the ceilings of their arithmetic, measured in the same run."""
