"""Keys, callers and sessions: who asks, and what they may do."""
