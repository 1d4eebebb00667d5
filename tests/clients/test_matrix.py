"""Every client library against every feature; `docs/clients.md` says what came of it."""

from __future__ import annotations

import pytest

from tests.clients import document, programs
from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME, PROGRAMS
from tests.wire.conftest import cells_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("feature", programs.features())
@pytest.mark.parametrize("client", BY_NAME)
def test_feature(clients: Clients, client: str, feature: str, request: pytest.FixtureRequest) -> None:
    if feature == "wildcard" and cells_for("", ()) > 1:
        reason = "topics of a pattern are in several cells: refused (docs/cells.md, Not there yet)"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    cell = clients.cells(BY_NAME[client])[feature]
    assert cell.result in ("pass", "n/a"), cell.why
    assert cell.result == "pass" or cell.why, "a cell that is not applicable says why"


def test_the_document_says_what_was_found(clients: Clients, request: pytest.FixtureRequest) -> None:
    if cells_for("", ()) > 1:
        pytest.skip("docs/clients.md is about a broker of one cell")
    found = {program.name: clients.cells(program) for program in PROGRAMS}
    text = document.matrix(found)
    if request.config.getoption("--write-matrix"):
        document.write("matrix", text)
    assert document.part("matrix") == text, "docs/clients.md is stale: make clients-matrix"
