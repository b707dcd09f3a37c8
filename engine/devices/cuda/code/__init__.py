"""The CUDA kernels: their sources, and archives of kernels that were compiled ahead."""
