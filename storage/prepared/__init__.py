"""Prepared graphs: tables that answer every distance, stored and sealed like a matrix."""
