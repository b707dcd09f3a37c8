"""Pairs of vertices that are near each other: sparse rows, and the files that they are kept in."""
