"""The code of the CUDA kernels: its sources, and what was compiled of them ahead."""
