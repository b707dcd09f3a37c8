"""Carries out plans in this process, and measures the machine beforehand."""
