"""One matrix in rounds over many workers: who holds which stripe, closes which panel, and saves when."""
