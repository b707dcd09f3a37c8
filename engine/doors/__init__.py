"""Doors for other libraries' users: their functions, signatures and results, answered by this engine in-process."""
