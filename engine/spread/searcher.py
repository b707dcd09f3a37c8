"""A worker's side of a solve by rows."""
