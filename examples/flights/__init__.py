"""FLIGHTS: a year of departures pushed through a queue that holds no more than its policy says.

``table`` reads the rows, ``ends`` are the two clients, ``show`` runs them and watches the broker;
``python -m examples.flights`` says how it goes and what happened.
"""
