"""Settings and policies: their tables of fields, the YAML they are read from, the patterns they match by."""
