"""Coordinates of vertices: read from tables, kept with the graph, and used to find the vertex nearest to a point."""
