"""The load generator behind ``sluice bench``."""
