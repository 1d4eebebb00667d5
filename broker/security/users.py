"""The users a broker knows, held as verifiers, never as passwords.

A ``Users`` never changes: reading the file again makes another, which takes its place as a whole.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from scramp import ScramException  # type: ignore[import-untyped]
from scramp.utils import saslprep  # type: ignore[import-untyped]

from broker.security.identity import Identity

# RFC 7677 §4 asks for 4096 at least. This many take 14 ms of a processor of 2024, and it is the client of
# SCRAM that pays them.
ITERATIONS = 65_536
FEWEST, MOST = 4096, 10_000_000
SALT_BYTES = 16
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512", "SCRAM-SHA-1": "sha1"}
KEPT = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LONGEST_NAME = 255
LONGEST_PASSWORD = 1024
EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """What is kept instead of a password (RFC 5802 §3): it can check one and is none."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class User:
    """A user: verifiers by mechanism, groups, and whom it may act as.

    Without verifiers it can only come in by what needs none here: a certificate, a token.
    """

    name: str
    verifiers: Mapping[str, ScramVerifier] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    acts_as: frozenset[str] = frozenset()


class Users:
    """Users by name. For unknown ones there are decoys, so that nothing tells them from known ones.

    ``secret`` makes the decoys; it is kept with the users, so that an unknown user's salt stays the same.
    """

    def __init__(
        self, users: Mapping[str, User] | None = None, secret: bytes = b"", iterations: int = ITERATIONS
    ) -> None:
        self._users = dict(users or {})
        self._secret = secret or secrets.token_bytes(32)
        self._iterations = {name: _usual(self._users, name) or iterations for name in HASHES}

    def __contains__(self, user: str) -> bool:
        return user in self._users

    def __len__(self) -> int:
        return len(self._users)

    def groups(self, user: str) -> frozenset[str]:
        """The groups of a user; none of one who isn't known."""
        found = self._users.get(user)
        return frozenset() if found is None else found.groups

    def may_act_as(self, user: str, other: str) -> bool:
        """Whether a user may come in by another's name (RFC 4422 §3.4.1, authorization identity)."""
        found = self._users.get(user)
        return other == user or (found is not None and bool({other, EVERYBODY} & found.acts_as))

    def verifier(self, user: str, mechanism: str) -> ScramVerifier:
        """What to check a proof against; for an unknown user one that no proof satisfies."""
        # Made for everybody: its microseconds would tell, too.
        decoy = self._decoy(user, mechanism)
        found = self._users.get(user)
        kept = None if found is None else found.verifiers.get(mechanism)
        return kept or decoy

    def verify(self, user: str, password: str) -> Identity | None:
        """Who it is if that is the password. Takes milliseconds, as long for a user nobody knows."""
        name = prepared(user) or user
        found = self._users.get(name)
        mechanism = next((each for each in HASHES if found and each in found.verifiers), KEPT[0])
        kept = self.verifier(name, mechanism)
        digest = HASHES[mechanism]
        client_key = _client_key(prepared(password) or "", kept.salt, kept.iterations, digest)
        right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), kept.stored_key)
        return Identity(name, self.groups(name), "PLAIN") if right and found and prepared(password) else None

    def _decoy(self, user: str, mechanism: str) -> ScramVerifier:
        digest = HASHES[mechanism]
        named = mechanism.encode() + b" " + user.encode("utf-8", "surrogatepass")
        salt, stored, server = (hmac.digest(self._secret, b"%d %b" % (n, named), "sha512") for n in range(3))
        size = hashlib.new(digest).digest_size
        return ScramVerifier(salt[:SALT_BYTES], self._iterations[mechanism], stored[:size], server[:size])


def prepared(text: str) -> str:
    """A name or a password as it is compared (RFC 4013); empty if it may not be one."""
    if text.isascii() and text.isprintable():
        return text
    try:
        return str(saslprep(text))
    except ScramException:
        return ""


def is_name(name: str) -> bool:
    """Whether somebody may be called that, whoever says so: a file, a certificate or a token."""
    return (
        name == prepared(name) != ""
        and name.isprintable()
        and len(name.encode()) <= LONGEST_NAME
        and name[0] not in "!#*$"
        and name != "anonymous"
    )


def make_verifier(password: str, mechanism: str, iterations: int = ITERATIONS) -> ScramVerifier:
    """A new verifier with a salt of its own; ``password`` is prepared. Takes milliseconds."""
    digest = HASHES[mechanism]
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    return ScramVerifier(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", digest))


def _client_key(password: str, salt: bytes, iterations: int, digest: str) -> bytes:
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return hmac.digest(salted, b"Client Key", digest)


def _usual(users: Mapping[str, User], mechanism: str) -> int:
    """The iterations most users have; 0 without any."""
    counts = Counter(u.verifiers[mechanism].iterations for u in users.values() if mechanism in u.verifiers)
    return counts.most_common(1)[0][0] if counts else 0
