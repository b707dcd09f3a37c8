"""Kernels of semirings other than min-plus."""
