"""Answers from the tables of a prepared graph (distances, near pairs, measures, summaries), and changes its weights."""
