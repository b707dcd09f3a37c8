"""Blocked Floyd-Warshall on matrices larger than the memory of a device or of the host, streamed in stripes of whole
rows.
"""
