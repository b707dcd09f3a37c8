"""Plain data and protocols that the whole engine shares.  The modules here import no other part of the engine."""
