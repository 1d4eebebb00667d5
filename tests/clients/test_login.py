"""Client libraries log in without TLS, where settings let them: accepted, or refused for what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients import programs
from tests.clients.conftest import Clients
from tests.clients.logins import HAS, token, users_and_keys
from tests.security.exchanges import PASSWORD
from tests.wire.conftest import RunningBroker

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

WITHOUT_TLS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "XOAUTH2", "ANONYMOUS")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("login")
    settings = f"security:\n{users_and_keys(folder)}  plain_without_tls: true\n"
    broker = RunningBroker(folder / "broker", settings, "", ())
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def login(
    clients: Clients, broker: RunningBroker, name: str, mechanism: str, user: str, password: str
) -> tuple[str, str]:
    program = clients.built(programs.BY_NAME[name])
    env = programs.environment(broker.url, "")
    env |= {"LOGIN_USER": user, "LOGIN_PASSWORD": password}
    ran = programs.ran(programs.start(program, env, "login", mechanism), 60)
    assert ran.lines, f"{name}: status {ran.status}: {ran.stderr[-2000:]}"
    return str(ran.lines[0]["login"]), str(ran.lines[0]["why"])


@pytest.mark.parametrize("mechanism", WITHOUT_TLS)
@pytest.mark.parametrize("name", HAS)
def test_login(clients: Clients, guarded: RunningBroker, name: str, mechanism: str) -> None:
    right, wrong = (token(), token(aud="another")) if mechanism == "XOAUTH2" else (PASSWORD, "hunter2")
    came, why = login(clients, guarded, name, mechanism, "alice", right)
    if mechanism not in HAS[name]:
        assert came in ("n/a", "refused"), "docs/security.md says that it hasn't this mechanism"
        return
    assert (came, why) == ("accepted", "")
    if mechanism == "ANONYMOUS":
        guarded.wait_for_log("user anonymous by ANONYMOUS")
        return
    guarded.wait_for_log(f"user alice by {mechanism}")
    for user, password in (("alice", wrong), ("nobody", right)):
        came, why = login(clients, guarded, name, mechanism, user, password)
        assert came == "refused", f"{user}: {why}"
        assert password not in why
