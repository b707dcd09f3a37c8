"""Readers of problem instances and of matrices: DIMACS, METIS, TSPLIB, Matrix Market, arrays of NumPy and others."""
