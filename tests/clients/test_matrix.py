"""Every client library against every feature; `docs/clients.md` says what came of it."""

from __future__ import annotations

import pytest

from tests.clients import document, programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME, PROGRAMS

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("feature", programs.features())
@pytest.mark.parametrize("client", BY_NAME)
def test_feature(clients: Clients, client: str, feature: str) -> None:
    cell = clients.cells(BY_NAME[client])[feature]
    assert cell.result in ("pass", "n/a"), cell.why
    assert cell.result == "pass" or cell.why, "a cell that is not applicable says why"


def test_the_document_says_what_was_found(clients: Clients, request: pytest.FixtureRequest) -> None:
    found = {program.name: clients.cells(program) for program in PROGRAMS}
    text = document.matrix(found)
    if request.config.getoption("--write-matrix"):
        document.write("matrix", text)
    assert document.part("matrix") == text, "docs/clients.md is stale: make clients-matrix"
