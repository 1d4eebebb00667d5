"""STREAMS: flights through a stream of four partitions, Spark and a queue, with a restart of everything.

``make job-streams``, or ``python -m examples.streams``. ``ends`` are the producers and the consumer,
``delays`` is the program for Spark, ``books`` says what has to come of it, ``show`` runs, kills and starts
all of them, ``picture`` draws what happened.
"""
