"""Readers of layers of edges from GeoPackage and GeoParquet; the geometry of an edge is a line."""
