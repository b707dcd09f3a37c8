"""Plans, solves, routes and verification for semirings other than min-plus."""
