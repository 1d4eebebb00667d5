"""Users and rules for brokers in tests, and how each of them says who it is over HTTP."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from broker.security.users import KEPT, User, make_verifier
from broker.security.usersfile import UsersFile, changing

# As few as the file takes: these passwords guard nothing.
ITERATIONS = 4096
PASSWORDS: Mapping[str, str] = {
    "alice": "wonder land",
    "rita": "reads, only",
    "otto": "orders: his",
    "zoë": "pässwörd",
}
GROUPS = {"alice": frozenset({"operators"}), "rita": frozenset({"readers"})}
RULES = """rules:
  - allow: all
    groups: operators
  - allow: [connect, manage-read]
    groups: readers
  - allow: [connect, all]
    users: [otto]
    addresses: "orders.>"
  - allow: connect
    users: [otto, zoë]
"""


def settings_for(folder: Path, rules: str = RULES, more: str = "") -> str:
    """Write a users' file, and rules, into a folder; the broker's settings that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    users = folder / "users"
    with changing(users) as file:
        file.iterations = ITERATIONS
        for name, password in PASSWORDS.items():
            give(file, name, password)
    named = f"security:\n  users: {users}\n"
    if rules:
        (folder / "acl.yaml").write_text(rules)
        named += f"  acl: {folder / 'acl.yaml'}\n"
    return named + more


def give(file: UsersFile, name: str, password: str) -> None:
    """A user with that password, in the groups it has."""
    verifiers = {each: make_verifier(password, each, ITERATIONS) for each in KEPT}
    file.users[name] = User(name, verifiers, GROUPS.get(name, frozenset()))


def basic(user: str, password: str | None = None) -> dict[str, str]:
    """The header by which a user is known; its own password unless another one is given."""
    text = f"{user}:{PASSWORDS[user] if password is None else password}"
    return {"Authorization": "Basic " + b64encode(text.encode()).decode()}
