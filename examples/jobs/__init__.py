"""The Spark jobs on real flights, each beside a broker of its own: ``python -m examples.jobs NAME``."""
