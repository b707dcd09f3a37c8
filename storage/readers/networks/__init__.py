"""Readers of formats whose vertices and edges have attributes."""
