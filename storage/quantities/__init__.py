"""Further arrays of a store: sums of quantities along the shortest paths, in the same tiles as the distances."""
