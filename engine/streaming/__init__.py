"""Matrices larger than a device's or the host's memory: blocked Floyd-Warshall, streamed in stripes of whole rows."""
