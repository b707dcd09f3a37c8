"""Plain data and protocols that all of the engine shares.  Imports nothing else of the engine."""
