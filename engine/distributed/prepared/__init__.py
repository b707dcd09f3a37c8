"""Preparing a graph with many workers: they eliminate spans (runs of parts) and compute their tables in parallel."""
