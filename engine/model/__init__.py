"""Plain data and protocols that all of the engine shares.  The modules here import nothing else of the engine."""
