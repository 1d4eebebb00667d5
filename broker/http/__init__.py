"""HTTP: metrics, health, the API and the console. It asks the management model and decides nothing."""
