"""The bodies of the commands ``apsp betweenness`` and ``apsp assign``."""
