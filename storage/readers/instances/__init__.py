"""Readers of collections of instances, each with a format of its own."""
