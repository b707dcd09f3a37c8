"""Prepared graphs: tables from which every distance is computed, stored and sealed like a matrix."""
