"""Which algorithm, device and layout a solve takes, and what it will cost: arithmetic only."""
