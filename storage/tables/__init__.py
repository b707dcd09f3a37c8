"""Results in rows: tables of measures and of near pairs, sealed like stores, and the tables that people upload."""
