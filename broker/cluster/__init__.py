"""A cell of brokers that share one replicated log: the log, who owns the cell, and who follows."""
