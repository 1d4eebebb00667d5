"""Other brokers beside ours, each as its own documentation says it should run: ``python -m bench.peers``."""
