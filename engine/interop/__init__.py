"""Functions of other libraries (SciPy's csgraph, NetworkX), with their signatures, answered by this engine."""
