"""The NetworkX backend: shortest-path functions of NetworkX, answered by this engine.

A program calls ``nx.diameter(G, backend="apsp")``, or runs unchanged with ``NETWORKX_BACKEND_PRIORITY=apsp``.  Results
and exceptions are NetworkX's.  Cases that the engine does not handle are *left to NetworkX*: the functions raise
``NotImplementedError``, and NetworkX answers with its own code.  Such cases are weights that are not finite numbers,
negative arcs where NetworkX would raise an error or never return, and graphs without vertices.
"""

from __future__ import annotations

from typing import Final

# importing these modules registers their functions
from engine.interop import networkx_betweenness, networkx_facts, networkx_pairs, networkx_sources
from engine.interop.networkx_backend import CALLS, NetworkXBackend

__all__ = ["BACKEND", "CALLS", "networkx_betweenness", "networkx_facts", "networkx_pairs", "networkx_sources"]

BACKEND: Final = NetworkXBackend()
