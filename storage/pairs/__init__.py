"""Pairs of vertices that are near each other: their sparse rows, and the files that hold these."""
