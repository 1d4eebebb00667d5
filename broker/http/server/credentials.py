"""Passwords that came over HTTP: checked in threads, throttled by address, remembered for a minute.

A scraper says its password with every request, and checking one is made to take milliseconds. So what was
right is remembered, as a keyed hash under a key that nobody but this process has; what was wrong never is.
It is remembered for the network it came from: a guesser elsewhere, who has to wait, learns nothing from it.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from broker.config.networks import network_of
from broker.http.server.calls import Ask
from broker.http.server.threads import Threads
from broker.security.exchange import TokenError
from broker.security.identity import Identity
from broker.security.throttle import Attempts
from broker.security.users import LONGEST_NAME, LONGEST_PASSWORD, Users

MOST_REMEMBERED = 256
REMEMBERED_NS = 60 * 1_000_000_000
# Checks at once: the rest wait, so that guesses take no more than this of the machine.
MOST_CHECKS = 2
REALM = 'realm="sluice"'

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class LoginDelay:
    """Too many failed from there: nothing is checked for so many seconds."""

    seconds: int


class Throttle:
    """Checks of passwords and tokens, by the pauses of their addresses; used in threads of their own.

    ``attempts`` are the reactor's, and are asked by way of ``ask``.
    """

    def __init__(self, attempts: Attempts, ask: Ask, now_ns: Callable[[], int]) -> None:
        self._attempts = attempts
        self._ask = ask
        self._now_ns = now_ns

    def run(self, address: str, check: Callable[[], Found | None]) -> Found | LoginDelay | None:
        """Do a check unless its address has to wait; None from it, or TokenError, is a failure and counts."""
        blocked_ms = self._ask(lambda: self._attempts.blocked(address, self._now_ns()))
        if blocked_ms > 0:
            return LoginDelay(-(-blocked_ms // 1000))
        try:
            found = check()
        except TokenError:
            self._failed(address)
            raise
        if found is None:
            self._failed(address)
        else:
            self._ask(lambda: self._attempts.succeeded(address))
        return found

    def _failed(self, address: str) -> None:
        self._ask(lambda: self._attempts.failed(address, self._now_ns()))


class Passwords:
    """Checks passwords against whatever users there are by then; used on the HTTP loop's thread only."""

    def __init__(self, attempts: Attempts, ask: Ask, threads: Threads, now_ns: Callable[[], int]) -> None:
        self._throttle = Throttle(attempts, ask, now_ns)
        self._threads = threads
        self._now_ns = now_ns
        self._key = secrets.token_bytes(32)
        self._of: Users | None = None
        self._right: OrderedDict[bytes, tuple[Identity, int]] = OrderedDict()
        self._checks = asyncio.Semaphore(MOST_CHECKS)

    async def check(
        self, users: Users, user: str, password: str, address: str
    ) -> Identity | LoginDelay | None:
        """Who it is; None if that is not the password. TimeoutError where too much is under way."""
        if not user or len(user) > LONGEST_NAME or len(password) > LONGEST_PASSWORD:
            return None
        key = self._hash(network_of(address), user, password)
        found = self._recall(users, key)
        if found is not None:
            return found
        async with self._checks:
            # Whoever waited here may have been let in meanwhile.
            known = self._recall(users, key)
            if known is not None:
                return known
            checked = await self._threads.run(partial(self._checked, users, user, password, address))
        if isinstance(checked, Identity):
            self._remember(users, key, checked)
        return checked

    def _checked(self, users: Users, user: str, password: str, address: str) -> Identity | LoginDelay | None:
        return self._throttle.run(address, lambda: users.verify(user, password))

    def _recall(self, users: Users, key: bytes) -> Identity | None:
        if users is not self._of:
            self._of = users
            self._right.clear()
        identity, until_ns = self._right.get(key, (None, 0))
        return identity if self._now_ns() < until_ns else None

    def _remember(self, users: Users, key: bytes, identity: Identity) -> None:
        if users is not self._of:  # read again while this was checked
            return
        while len(self._right) >= MOST_REMEMBERED:
            self._right.popitem(last=False)
        self._right[key] = identity, self._now_ns() + REMEMBERED_NS

    def _hash(self, network: str, user: str, password: str) -> bytes:
        """Hash what was given; lengths stand in front, so that no two are one text."""
        parts = [each.encode("utf-8", "surrogatepass") for each in (network, user, password)]
        text = b"".join(len(each).to_bytes(4, "big") + each for each in parts)
        return hmac.digest(self._key, text, "sha256")


def basic(value: bytes) -> tuple[str, str] | None:
    """The user and password of `Basic ...` (RFC 7617, in UTF-8); None if it is none."""
    try:
        text = b64decode(value, validate=True).decode()
    except ValueError:
        return None
    user, colon, password = text.partition(":")
    return (user, password) if colon and user and "\0" not in text else None


def scheme(value: bytes) -> tuple[str, bytes]:
    """An Authorization header's scheme in lower case, and what it says."""
    name, _, rest = value.strip().partition(b" ")
    return name.decode("latin-1").lower(), rest.strip()


def challenge(from_a_page: bool, passwords: bool, tokens: bool) -> str:
    """What a 401 asks for (RFC 9110 §11.6.1). A page that asks is answered without Basic, else the browser
    would ask its user with a dialog of its own.
    """
    known = (
        (f'Basic {REALM}, charset="UTF-8"', passwords and not from_a_page),
        (f"Bearer {REALM}", tokens),
    )
    return ", ".join(each for each, wanted in known if wanted) or f"Session {REALM}"
