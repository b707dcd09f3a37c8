"""Kernels for processors, compiled by Numba, and the threads that run them."""

from engine.model.system import use_level

use_level()
