"""Results as pictures, tables and sentences."""
