"""The client at the other end of a connection: its address, its user and the names it has given itself."""

from __future__ import annotations

from dataclasses import dataclass

from broker.loggers import About, about
from broker.security.exchange import ListenerTrust

# User, container-id (or the connection, where it gave none), link name, and whether the client sends.
LinkKey = tuple[str, str, str, bool]


@dataclass(slots=True, eq=False)
class ClientDetails:
    """The client of one connection; ``name`` (its container-id) and ``host`` are known once it has opened."""

    id: str
    address: str
    user: str
    # Where it came in: whether it may stay is asked again when the users are read again.
    door: ListenerTrust
    name: str = ""
    # Its virtual host, empty for the default one.
    host: str = ""

    def about(self, **fields: object) -> About:
        """Return the fields that say in a line of the log who it is, with further ones."""
        return about(self.address, connection=self.id, container=self.name, user=self.user, **fields)

    def link_key(self, name: str, client_sends: bool) -> LinkKey:
        """Return the key by which a link of this client is known when it comes back (§2.6.1)."""
        return self.user, self.name or self.id, name, client_sends
