"""Readers of collections of problem instances, of which each collection has a format of its own."""
