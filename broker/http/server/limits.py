"""How much a client of the HTTP port may send, for how long, and how many there may be."""

from __future__ import annotations

LARGEST_HEAD = 16 * 1024
# Requests that are answered at once; a client that has become an AMQP connection counts there.
MOST_CLIENTS = 32
# Clients, most of which send half a request or none: such a one costs little, and makes room for others.
MOST_CONNECTIONS = 256
# How long a client may take for a whole request, and as long for the rest of an answer; how long for a pause
# within a request or between two. The time that the broker takes for an answer doesn't count.
REQUEST_S = 10.0
PAUSE_S = 5.0
# Of those that send no whole request, one that has had its place so long makes room first.
GRACE_S = 1.0
# Of a body whose request was refused already, this much is read and thrown away.
LARGEST_REST = 4 << 20
# The key of a scope's extension that lifts the limit on an answer's time, for an answer without an end.
ENDLESS = "sluice.endless"
# How long a stop waits for clients of WebSocket to hear of it.
GOODBYE_S = 1.0
