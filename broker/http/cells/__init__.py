"""One HTTP face over all cells of a machine: whichever cell a client reached asks the others, and merges."""
