"""Backends: the machine code under the algorithms, behind one protocol (see ``base``)."""
