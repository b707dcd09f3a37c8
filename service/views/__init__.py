"""Prepares graphs and matrices for display: facts, summary, samples, pictures, and rows in file formats."""
