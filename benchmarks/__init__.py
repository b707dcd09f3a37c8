"""Measurements, each against a ceiling, a peer or a paper."""
