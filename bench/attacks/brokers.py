"""A broker for each attack: as it is delivered, or with users and TLS where the attack is on those."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.attacks.attacker import attacking
from bench.attacks.guarded import GUARDED_ATTACKS
from bench.attacks.measuring import Line, measured
from bench.attacks.web import WEB_ATTACKS
from tests.wire import people
from tests.wire.conftest import RunningBroker
from tests.wire.tlsworld import Pki, port_of

# Longer than all the slices of one attack.
LASTING_S = 120.0
# The pair is nobody, as everywhere else; the attacker guesses who somebody is.
OPEN_TO_ALL = "  allow_anonymous: true\n  plain_without_tls: true\n"
TLS = ("--listen", "amqps://127.0.0.1:0")


def line_of(name: str) -> Line:
    """One attack on a broker of its own."""
    with tempfile.TemporaryDirectory(prefix="sluice-attacks-") as folder:
        settings = ""
        listening: tuple[str, ...] = ()
        if name in WEB_ATTACKS or name in GUARDED_ATTACKS:
            settings = people.settings_for(Path(folder), "", OPEN_TO_ALL)
        if name in GUARDED_ATTACKS:
            settings, listening = settings + Pki.at(Path(folder) / "certs").section(), TLS
        broker = RunningBroker(Path(folder) / "broker", settings, "", listening)
        try:
            broker.settle()
            port = port_for(name, broker)
            return measured(name, broker, lambda: attacking(name, port, LASTING_S))
        finally:
            broker.stop()


def port_for(name: str, broker: RunningBroker) -> int:
    """Where the attack is to go."""
    if name in WEB_ATTACKS:
        return broker.http_port
    return port_of(broker) if "TLS" in name else broker.port
