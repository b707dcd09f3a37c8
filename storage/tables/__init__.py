"""Tables: those that jobs make, which are sealed like stores, and those that people upload."""
