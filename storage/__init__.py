"""Stores and reads graphs, matrices and job records; it imports no algorithm and no HTTP."""
