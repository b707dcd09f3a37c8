"""Preparing a graph by many workers: spans of the tree of parts are eliminated, and get their tables, side by side."""
