"""An owner and a standby's relay before it: both real, in threads of the test's process."""

from __future__ import annotations

import threading
from pathlib import Path

from broker.config.broker import load_settings
from broker.server.cluster.member_port import MemberPort
from broker.server.cluster.relay import OwnerAddress, Page, Relay, RelayListener
from broker.server.server import Server

SECRET = b"0123456789abcdef0123456789abcdef"


class _Quiet(Server):
    """A server beside others in one process, which has no signals of its own."""

    def _install_signals(self) -> None:
        pass


class RelayedOwner:
    """A broker with a port for members; ``standby`` is why it refuses, empty if it is the owner."""

    def __init__(self, folder: Path, config: str = "", listener: str = "amqp://127.0.0.1:0") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "broker.yaml"
        file.write_text(config)
        flags = {"listen": [listener], "http": "127.0.0.1:0", "data": folder / "data"}
        self.server = _Quiet(load_settings(file, {}, flags))
        self.listener = str(self.server.settings.listeners[0])
        self.http = self.server.settings.http.url
        self.opened = self.server.start()
        self.standby = ""
        route = self.server.routes().route
        self.port = MemberPort("127.0.0.1", 0, "main", SECRET, lambda: self.standby, route)
        self.member_port = self.port.start()
        self._thread = threading.Thread(target=self.server.reactor.run, daemon=True)
        self._thread.start()

    def address(self, epoch: int = 1) -> OwnerAddress:
        """Where a relay finds it."""
        return OwnerAddress("a", "127.0.0.1", self.member_port, epoch)

    def relay(self, pages: Page | None = None, hold_ns: int = 5_000_000_000) -> Relay:
        """Start a standby's relay: first its AMQP port, then its HTTP port; it knows no owner yet."""
        listeners = [
            RelayListener(self.listener, "127.0.0.1", 0),
            RelayListener(self.http, "127.0.0.1", 0, pages),
        ]
        relay = Relay("main", "b", SECRET, listeners, hold_ns)
        relay.start()
        return relay

    def stop(self) -> None:
        """Stop both."""
        self.port.stop()
        self.server.reactor.post(self.server.reactor.stop)
        self._thread.join(10)
        self.server.close()
