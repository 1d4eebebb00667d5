"""Every attack on the HTTP port, and on logins and TLS, for a moment: messages of others flow during it and
after it, and somebody who asks over HTTP afterwards is answered.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from bench.attacks.attacker import Attacker
from bench.attacks.brokers import OPEN_TO_ALL, TLS, port_for
from bench.attacks.guarded import GUARDED_ATTACKS
from bench.attacks.web import WEB_ATTACKS
from tests.attacks.conftest import Neighbours
from tests.wire import people
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.tlsworld import Pki

pytestmark = pytest.mark.wire

SECONDS = 0.4


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker with users and TLS for all attacks: each begins where the last has left it."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = people.settings_for(folder, "", OPEN_TO_ALL) + Pki.at(folder / "certs").section()
    running = RunningBroker(folder / "broker", settings, "", TLS)
    running.settle()
    yield running
    running.stop()
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def pair(guarded: RunningBroker) -> Iterator[Neighbours]:
    """Who goes on meanwhile."""
    found = Neighbours(guarded.url)
    yield found
    found.stop()


def is_answered(broker: RunningBroker) -> bool:
    """Whether somebody who asks over HTTP is."""
    with (
        suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/healthz", timeout=30) as answer,
    ):
        return bool(answer.read() == b"ok\n")
    return False


@pytest.mark.parametrize("name", [*GUARDED_ATTACKS, *WEB_ATTACKS])
def test_messages_flow_during_the_attack_and_after_it(
    name: str, guarded: RunningBroker, pair: Neighbours
) -> None:
    pair.go_on(20)
    with closing(Attacker(port_for(name, guarded))) as attacker:
        attacker.begin(name, SECONDS)
        pair.go_on()
        attacker.await_done()
    pair.go_on()
    wait_until(lambda: is_answered(guarded), 30, "an answer over HTTP")
    assert guarded.process.poll() is None
