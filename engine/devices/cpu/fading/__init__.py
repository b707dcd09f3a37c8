"""Sums of weights that fade with the distance, from distances that are not written."""
