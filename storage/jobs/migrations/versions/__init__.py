"""One module a change, in order; each says which one it follows."""
