"""How much passes through vertices and over arcs: betweenness of all pairs, and demands assigned to shortest paths."""
