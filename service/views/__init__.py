"""What interfaces show of a graph or a matrix: facts, summary, samples, pictures, and rows in file formats."""
