"""What Prometheus reads: families of figures in its text format."""
