"""One module per algorithm, each written over the operations of a backend."""
