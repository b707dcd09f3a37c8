"""Counts of shortest paths on GPUs, from rows of distances that searches, sweeps and matrices have computed there."""
