"""One file for each verb of ``sluice``."""
