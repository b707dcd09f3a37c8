"""Measures and summaries of a prepared graph: its rows are computed from the tables, a band at a time, and not kept."""
