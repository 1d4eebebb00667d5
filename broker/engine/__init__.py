"""The place where credit, order and the store meet, on one thread: nodes, messages, transfers, bridges.

Pure: it knows no clock, no socket and no file. Time is an argument; the disk is behind ``store.port``.
"""
