"""The NetworkX backend: shortest-path functions of NetworkX, answered by this engine.

``nx.diameter(G, backend="apsp")``, or ``NETWORKX_BACKEND_PRIORITY=apsp`` for a program that is not to be changed.
Results and exceptions are NetworkX's.  What is not done here raises ``NotImplementedError``, and NetworkX answers
itself: weights that are no finite numbers, negative arcs where it would refuse or loop, graphs without vertices.
"""

from __future__ import annotations

from typing import Final

# Importing these modules registers their functions.
from engine.interop import networkx_facts, networkx_pairs, networkx_sources
from engine.interop.networkx_backend import CALLS, NetworkXBackend

__all__ = ["BACKEND", "CALLS", "networkx_facts", "networkx_pairs", "networkx_sources"]

BACKEND: Final = NetworkXBackend()
