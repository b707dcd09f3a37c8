"""Near pairs (pairs of vertices within a cutoff, or the nearest targets of each source): sparse rows and files."""
