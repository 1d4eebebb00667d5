"""Sluice: an AMQP 1.0 message broker whose heart is flow control."""

__version__ = "0.1.0"
