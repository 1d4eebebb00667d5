"""The HTTP port: its thread, its limits, who may ask, and AMQP over WebSocket."""
