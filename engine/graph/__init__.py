"""Facts of one graph: its order, parts, potentials and selected vertices."""
