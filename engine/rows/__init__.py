"""Finished rows, their summary, and the dense rows of weights that some algorithms start from."""
