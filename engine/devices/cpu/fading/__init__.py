"""Sums of weights, each multiplied by a decay of the distance, from searches that write no rows of distances."""
