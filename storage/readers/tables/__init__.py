"""Readers of rows: edge lists as text or Parquet, and matrices as text."""
