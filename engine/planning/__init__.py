"""Selects algorithm, device and layout of a solve and predicts its costs, by arithmetic alone."""
