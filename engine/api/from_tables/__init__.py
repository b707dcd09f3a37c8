"""Answers from the tables of a prepared graph: distances, near pairs, measures, summaries; and its new weights."""
