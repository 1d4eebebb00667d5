"""The AMQP client behind ``sluice send``, ``receive`` and ``bench``.

It imports nothing of the broker but the codec, and speaks the wire like any other client.
"""

from broker.client import library as library

# Whether Proton hides its functions is the one thing that varies between its builds; a single
# missing one is named by the dynamic loader.
library.require("pn_transport_tail", "pn_delivery", "pn_link_advance", "pn_collector_peek")
