"""ROUTES: nodes of this broker connected with those of others, over AMQP 1.0.

A route is an ordinary client of both brokers, in a thread of its own: the core knows nothing of it. See
docs/decisions/routes.md.
"""
