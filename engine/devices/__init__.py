"""The code that computes on processors and on GPUs; algorithms call it."""
