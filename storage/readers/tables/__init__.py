"""Readers of rows: edge lists, adjacency lists, and matrices as text."""
