"""Betweenness and the assignment of demands: one search from each source, shared among threads."""
