"""Prepares graphs and matrices for people: facts, summaries, samples and pictures; and writes rows as files."""
