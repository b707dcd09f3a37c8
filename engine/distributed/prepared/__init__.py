"""Preparing a graph with many workers: they eliminate spans of the tree of parts, and compute tables, in parallel."""
