"""Sums of quantities along shortest paths where every arc counts 1."""
