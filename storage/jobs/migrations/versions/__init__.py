"""One module for each change, in order; each names the change that it follows."""
