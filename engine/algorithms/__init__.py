"""One module per algorithm, each written over the verbs of a backend."""
