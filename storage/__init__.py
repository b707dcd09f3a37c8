"""Graphs, matrices and job records at rest.  Knows no algorithm and no HTTP."""
