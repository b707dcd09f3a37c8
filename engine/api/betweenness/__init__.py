"""Flow on shortest paths through vertices and over arcs: betweenness of all pairs, and assignment of demands."""
