"""Pictures of matrices and networks: heat maps, histograms and maps, and the samples that they are drawn from."""
