"""Counts of shortest paths on GPUs, in the rows of distances that searches, sweeps and matrices leave there."""
