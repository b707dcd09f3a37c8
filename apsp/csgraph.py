"""The shortest-path functions of ``scipy.sparse.csgraph`` on this engine, with the same signatures and results.

>>> import apsp
>>> apsp.csgraph.shortest_path([[0, 3, 0], [0, 0, 4], [1, 0, 0]])
array([[0., 3., 7.],
       [5., 0., 4.],
       [1., 4., 0.]])
"""

from engine.interop.scipy_csgraph import bellman_ford, dijkstra, floyd_warshall, johnson, shortest_path

__all__ = ["bellman_ford", "dijkstra", "floyd_warshall", "johnson", "shortest_path"]
