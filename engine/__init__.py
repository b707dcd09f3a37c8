"""Planning and solving all-pairs shortest paths.  Knows no HTTP and no database."""
