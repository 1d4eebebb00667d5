"""Hostile peers of the AMQP port, and what is left of everybody else's throughput while they are at work."""
