"""What becomes of finished rows: their facts, their summary, and weights as dense rows."""
