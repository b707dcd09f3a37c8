"""The validated graph, and where uploaded graphs are kept."""
