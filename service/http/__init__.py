"""HTTP itself: limits, uploads, ranges, entity tags, and the fast path."""
