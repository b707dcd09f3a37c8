"""What ``apsp betweenness`` and ``apsp assign`` do."""
