"""Brandes' accumulation on processors: counts of shortest paths, and of paths through vertices and over arcs."""
