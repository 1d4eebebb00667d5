"""Every attack of the catalogue, for a moment: messages of others flow during it and after it.

How well they flow is measured by ``python -m bench.attacks``; what each offence is answered with is in
test_answers_to_attacks.py and in tests/wire.
"""

from __future__ import annotations

import pytest

from bench.attacks.attacker import Attacker
from bench.attacks.catalogue import ATTACKS
from tests.attacks.conftest import Neighbours
from tests.wire.conftest import RunningBroker

pytestmark = pytest.mark.wire

SECONDS = 0.4


@pytest.mark.parametrize("name", ATTACKS)
def test_messages_flow_during_the_attack_and_after_it(
    name: str, attacked: RunningBroker, attacker: Attacker, neighbours: Neighbours
) -> None:
    neighbours.go_on(20)
    attacker.begin(name, SECONDS)
    neighbours.go_on()
    attacker.await_done()
    neighbours.go_on()
    assert attacked.process.poll() is None
    assert "Traceback" not in attacked.log
