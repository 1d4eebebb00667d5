"""LOGS: how lines are written, how many there may be, and from which level on."""
