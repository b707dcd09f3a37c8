"""Functions with the signatures of other libraries (SciPy's csgraph, NetworkX), computed by this engine."""
