"""A broker with users and rules, and clients that are those users."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proton.utils import BlockingConnection

from broker.client.request import Management
from broker.security.users import FEWEST, User, make_verifier
from broker.security.usersfile import changing
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.terminus import connected

PASSWORD = "open-sesame"


class Secured:
    """A broker whose users, each with groups, all have one password; ``more`` settings stand beside."""

    def __init__(
        self,
        start: StartBroker,
        folder: Path,
        rules: str,
        users: dict[str, str],
        more: str = "",
        policies: str = "",
    ) -> None:
        self.acl = folder / "acl.yaml"
        self.acl.write_text(rules)
        users_file = folder / "users"
        with changing(users_file) as found:
            for name, groups in users.items():
                verifier = make_verifier(PASSWORD, "SCRAM-SHA-256", FEWEST)
                found.users[name] = User(name, {"SCRAM-SHA-256": verifier}, frozenset(groups.split()))
        known = f"users: {users_file}, plain_without_tls: true, allow_anonymous: true"
        config = f"security: {{{known}, acl: {self.acl}}}"
        self.broker: RunningBroker = start(f"{config}\n{more}", policies)

    def url(self, user: str) -> str:
        """The broker's address for a user; '' comes as nobody."""
        return f"amqp://{user}:{PASSWORD}@127.0.0.1:{self.broker.port}" if user else self.broker.url

    @contextmanager
    def connected(
        self, user: str, container: str = "", host: str | None = None
    ) -> Iterator[BlockingConnection]:
        """A blocking connection of a user."""
        with connected(self.url(user), container, host) as connection:
            yield connection

    def change(self, rules: str) -> None:
        """Other rules from now on, by a signal."""
        before = self.broker.log.count("reload")
        self.acl.write_text(rules)
        self.broker.signal(signal.SIGHUP)
        wait_until(lambda: self.broker.log.count("reload") > before, 10, "the rules to be read again")

    def forget(self) -> None:
        """Every queue and topic, so that the next test finds none."""
        with Management(self.url("root")) as management:
            for kind in ("queue", "topic"):
                body = management.call("QUERY", f"org.sluice.{kind}", body={"attributeNames": ["name"]}).body
                assert isinstance(body, dict)
                for [name] in body["results"]:
                    if not name.startswith("$"):
                        management.call("DELETE", f"org.sluice.{kind}", name)
