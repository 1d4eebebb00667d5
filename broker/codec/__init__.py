"""AMQP 1.0 as bytes: messages, their sections and bounds, SASL frames, values as text."""
