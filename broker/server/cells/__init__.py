"""Several cells on one machine: a supervisor, a process a cell, and what the cells pass to each other."""
