"""Transactions of the libraries that have them, or let a program say them: declare, post, retire, discharge.

Qpid JMS: test_jms_transactions.py; Proton: tests/wire/test_transactions.py. go-amqp has neither a
coordinator's target nor a state of its own for a transfer or an outcome.
"""

from __future__ import annotations

import pytest

from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

RHEA = [
    ("before the commit", None),
    ("commit", "accepted"),
    ("after the commit", "committed"),
    ("rollback", "accepted"),
    ("after the rollback", None),
    ("unknown id", "amqp:transaction:unknown-id"),
    ("taken", ["taken", 0]),
    ("rollback", "accepted"),
    ("taken", ["taken", 1]),
    ("commit", "accepted"),
    ("at last", None),
]
FE2O3 = [
    ("before the commit", None),
    *[("after the commit", f"committed {number}") for number in range(3)],
    ("after the rollback", None),
    ("after the rollback of an accept", "taken"),
    ("after the commit of an accept", None),
    ("after an owned commit", "owned"),
    ("after a drop", None),
]


@pytest.mark.parametrize(
    ("client", "command", "expected"),
    [
        ("rhea", ("node", "transactions.js"), RHEA),
        ("fe2o3-amqp", ("./target/debug/transactions",), FE2O3),
    ],
)
def test_it_declares_posts_retires_and_discharges(
    clients: Clients, client: str, command: tuple[str, ...], expected: list[tuple[str, object]]
) -> None:
    program = clients.built(BY_NAME[client])
    ran = programs.ran(programs.start_command(program, command, clients.env, f"transactions.{client}"), 60)
    assert ran.status == 0, ran.stderr
    assert [(line["step"], line["got"]) for line in ran.lines] == expected


def test_protonj2_commits_and_rolls_back(clients: Clients) -> None:
    program = clients.built(BY_NAME["protonj2"])
    ran = programs.ran(programs.start(program, clients.env, "features", "protonj2", "transaction"), 60)
    assert [line["result"] for line in ran.lines] == ["pass"], (ran.lines, ran.stderr[-3000:])
