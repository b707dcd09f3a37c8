"""Brandes' accumulation on processors: counts of shortest paths, and what passes through vertices and arcs."""
