"""HTTP: metrics and health for machines that watch; it asks the model and decides nothing."""
