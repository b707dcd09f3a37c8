"""Results in rows: tables that jobs make, sealed like stores, and the tables that people upload."""
