"""EXAMPLES: programs against a running broker, made of the client a user has too."""
