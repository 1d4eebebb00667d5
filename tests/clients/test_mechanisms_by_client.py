"""Every client library by every mechanism, in every situation; docs/security.md has the table of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.clients import document, logins
from tests.clients.conftest import Clients
from tests.clients.logins import CLIENTS, HAS, JAVA, ROWS, Row, Trier, World
from tests.clients.programs import BY_NAME, Cell

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
Results = Callable[[str, Row], Mapping[str, Cell]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("mechanisms"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def results(clients: Clients, world: World) -> Results:
    """What a library came to by a mechanism it has; each is tried once."""
    known: dict[tuple[str, Row], Mapping[str, Cell]] = {}

    def result(client: str, row: Row) -> Mapping[str, Cell]:
        if client in JAVA and (shutil.which("keytool") is None or shutil.which("openssl") is None):
            pytest.skip("needs keytool and openssl")
        clients.built(BY_NAME[client])
        if (client, row) not in known:
            known[client, row] = Trier(world, client, row).results()
        return known[client, row]

    return result


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("client", CLIENTS)
def test_mechanism(clients: Clients, world: World, results: Results, client: str, row: Row) -> None:
    if row.mechanism in HAS[client]:
        found = results(client, row)
        assert {name: each for name, each in found.items() if each.result == "fail"} == {}
        return
    clients.built(BY_NAME[client])
    came = Trier(world, client, row).attempt()
    assert came.login in ("n/a", "refused"), "docs/security.md says that it hasn't this mechanism"


def test_the_page_says_what_was_found(results: Results, request: pytest.FixtureRequest) -> None:
    tried = [(client, row) for row in ROWS for client in CLIENTS if row.mechanism in HAS[client]]
    text = logins.table({each: results(*each) for each in tried})
    if request.config.getoption("--write-matrix"):
        document.write("mechanisms", text, PAGE)
    assert document.part("mechanisms", PAGE) == text, "docs/security.md is stale: make clients-matrix"
