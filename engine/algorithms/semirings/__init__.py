"""Rows of semirings other than min-plus: bottlenecks, products, reachability."""
