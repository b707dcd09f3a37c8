"""Stores and reads graphs, matrices and job records; imports no algorithms and no web framework."""
