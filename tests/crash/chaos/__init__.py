"""One data directory through many lives of a broker, and every message compared with the books after each."""
