"""What is found by sweeping the rows of a prepared graph: measures and summaries, the same as of a solve."""
