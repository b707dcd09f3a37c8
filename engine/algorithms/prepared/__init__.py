"""Answers from the tables of a prepared graph, without any search."""
