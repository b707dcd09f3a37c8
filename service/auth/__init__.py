"""Keys, callers and sessions: who sends a request, and what they may do."""
