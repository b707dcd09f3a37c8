"""The validated graph, its readers' rules for cleaning, its files, and the store of uploaded graphs."""
