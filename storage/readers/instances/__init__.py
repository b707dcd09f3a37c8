"""Readers of collections of problem instances; each collection has a format of its own."""
