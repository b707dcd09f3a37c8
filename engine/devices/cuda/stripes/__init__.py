"""Stripes of matrices on GPUs: they are streamed through a GPU, or kept on the GPU of a worker."""
