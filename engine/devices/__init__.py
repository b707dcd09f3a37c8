"""Devices: the machine code under the algorithms, for processors and for GPUs."""
