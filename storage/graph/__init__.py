"""The validated graph: the rules by which all readers clean it, its files, tables for its vertices, uploaded graphs."""
