"""The interface of the engine: plans, solves, prepared graphs, measures, routes, bulk solves and verification."""
