"""BENCH: the broker measured against its targets and against a loop that does nothing but move bytes."""
