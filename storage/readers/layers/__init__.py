"""Readers of layers of edges, of which each has the geometry of a line: GeoPackage and GeoParquet."""
