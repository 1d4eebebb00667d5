"""CLIENT: the small fast AMQP client that send, receive and bench use.

It imports nothing of the broker but the leaves: it speaks the wire like any other client.
"""

from broker.client import library as library

# Whether Proton hides its functions is the one thing that varies between its builds; a single
# missing one is named by the dynamic loader.
library.require("pn_transport_tail", "pn_delivery", "pn_link_advance", "pn_collector_peek")
