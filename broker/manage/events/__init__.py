"""Events: what the broker tells of its flow, as a history: one schema, a file of JSON lines and a topic.

``schema`` says what an event is, ``watch`` notices them on the engine's thread, ``teller`` gives them to
whoever listens and ``log`` writes them down, each of the two on a thread of its own. No message waits
for any of it.
"""
