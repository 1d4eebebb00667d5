"""The command line: verbs, and what they show in a terminal."""
