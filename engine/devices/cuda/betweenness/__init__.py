"""Betweenness on GPUs: counts shortest paths from rows of distances in device memory, whichever algorithm computed
them.
"""
