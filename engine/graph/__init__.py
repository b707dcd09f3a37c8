"""Facts about one graph: its vertex order, parts, potentials and selected vertices."""
