"""Every AMQP type from every client language to every other, and byte for byte through the broker."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.clients import document, programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME, TYPES_S

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

FILE = Path(__file__).parent / "types.json"
CASES: dict[str, Any] = {case["name"]: case["value"] for case in json.loads(FILE.read_text())}
# One of each codec; the blocking clients and the promises use the same.
SPEAKERS = ("proton-handler", "rhea", "qpid-jms", "protonj2", "go-amqp", "fe2o3-amqp")
_counts: dict[tuple[str, str], tuple[int, int]] = {}


@pytest.mark.parametrize(("sender", "receiver"), list(product(SPEAKERS, SPEAKERS)))
def test_what_one_sends_the_other_understands(clients: Clients, sender: str, receiver: str) -> None:
    one, other = clients.built(BY_NAME[sender]), clients.built(BY_NAME[receiver])
    address = f"types.{sender}.{receiver}"
    sending = programs.ran(programs.start(one, clients.env, "send-types", address, str(FILE)), TYPES_S)
    assert sending.status == 0, sending.stderr
    sent = [line["name"] for line in sending.lines if line["result"] == "sent"]
    assert sent
    receiving = programs.ran(
        programs.start(other, clients.env, "receive-types", address, str(len(sent))), TYPES_S
    )
    assert receiving.status == 0, receiving.stderr
    assert len(receiving.lines) == len(sent)
    told = {line["name"]: line for line in receiving.lines if line.get("result") != "n/a"}
    unsaid = {line["name"]: line["why"] for line in receiving.lines if line.get("result") == "n/a"}
    assert all(unsaid.values()), "what a client can't tell has a reason"
    wrong = {name: line["value"] for name, line in told.items() if line["value"] != CASES[str(name)]}
    assert wrong == {}
    # One that its library refuses before the program sees its name has none.
    assert set(told) | set(unsaid) - {None} <= set(sent)
    _counts[sender, receiver] = len(told), len(sent)


def test_the_document_says_how_many(clients: Clients, request: pytest.FixtureRequest) -> None:
    if len(_counts) < len(SPEAKERS) ** 2:
        pytest.skip("only part of the pairs were run")
    text = document.pairs(_counts)
    if request.config.getoption("--write-matrix"):
        document.write("pairs", text)
    assert document.part("pairs") == text, "docs/clients.md is stale: make clients-matrix"
