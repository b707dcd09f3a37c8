"""The description of the backend for NetworkX.  This module imports no other module, because every import of NetworkX
reads it.
"""

from __future__ import annotations

from typing import Final

#: The functions of NetworkX that the backend answers.  The text says which arguments or cases are left to NetworkX.
FUNCTIONS: Final[dict[str, str]] = {
    "all_pairs_dijkstra": "",
    "all_pairs_dijkstra_path": "",
    "all_pairs_dijkstra_path_length": "",
    "all_pairs_bellman_ford_path": "",
    "all_pairs_bellman_ford_path_length": "",
    "all_pairs_shortest_path": "",
    "all_pairs_shortest_path_length": "",
    "floyd_warshall": "",
    "floyd_warshall_numpy": "",
    "floyd_warshall_predecessor_and_distance": "",
    "johnson": "",
    "shortest_path": "a single pair",
    "shortest_path_length": "a single pair",
    "single_source_shortest_path": "",
    "single_source_shortest_path_length": "",
    "single_target_shortest_path": "",
    "single_target_shortest_path_length": "",
    "single_source_dijkstra": "",
    "single_source_dijkstra_path": "",
    "single_source_dijkstra_path_length": "",
    "multi_source_dijkstra": "",
    "multi_source_dijkstra_path": "",
    "multi_source_dijkstra_path_length": "",
    "single_source_bellman_ford": "",
    "single_source_bellman_ford_path": "",
    "single_source_bellman_ford_path_length": "",
    "average_shortest_path_length": "",
    "eccentricity": "sp",
    "diameter": "e, usebounds",
    "radius": "e, usebounds",
    "center": "e, usebounds",
    "periphery": "e, usebounds",
    "barycenter": "attr, sp",
    "wiener_index": "",
    "global_efficiency": "",
    "local_efficiency": "",
    "harmonic_diameter": "sp",
    "closeness_centrality": "u",
    "harmonic_centrality": "nbunch, sources",
    "betweenness_centrality": "",
    "edge_betweenness_centrality": "",
    "betweenness_centrality_subset": "",
}


def get_info() -> dict[str, object]:
    """Return the description of the backend in NetworkX's form."""
    notes = (
        "Weights are finite numbers under a key; others, functions of edges and graphs without vertices go to NetworkX"
    )
    functions = {
        name: {"additional_docs": f"{notes}{f', as do {left}' if left else ''}."} for name, left in FUNCTIONS.items()
    }
    return {
        "backend_name": "apsp",
        "project": "apsp",
        "package": "engine",
        "short_summary": "All-pairs shortest paths on vector units and GPUs.",
        "functions": functions,
    }
