"""Matrices cut into stripes on GPUs: streamed through them, or kept by workers."""
