"""The composition root: it puts the packages together, and has the clock, the threads and the signals."""
