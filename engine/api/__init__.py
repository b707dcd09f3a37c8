"""What the engine offers: plan, solve, routes, bulk solves and verification."""
