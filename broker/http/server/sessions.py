"""Sessions of the console: who has logged in, behind an opaque token that only its browser holds.

Bounded, in memory, gone with the process. Used on the HTTP loop's thread only; time is an argument. The law:
a token is made at a login and never taken from a client, and what is kept of it can't be turned back into it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256

from broker.security.identity import Identity

MOST_SESSIONS = 1000
# Of one user; one login more ends the session that was used longest ago.
MOST_OF_A_USER = 20
TOKEN_BYTES = 32


@dataclass(slots=True)
class Session:
    """One login. ``proof`` is what the user was known by then: once it differs, the session is over."""

    identity: Identity
    proof: object
    began_ns: int
    used_ns: int


class Sessions:
    """Tokens and whose they are. A session ends when it was not used for ``idle_ns``, and ``lifetime_ns``
    after its login at the latest. Tokens begin with ``mark``.
    """

    def __init__(self, idle_ns: int, lifetime_ns: int, most: int = MOST_SESSIONS, mark: str = "") -> None:
        self._mark = mark
        self.idle_ns = idle_ns
        self.lifetime_ns = lifetime_ns
        self._most = most
        # By what was used last, the oldest first.
        self._kept: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, identity: Identity, proof: object, now_ns: int) -> str:
        """A new session's token; where there are too many, the one used longest ago makes room."""
        self._sweep(now_ns)
        of_user = [key for key, each in self._kept.items() if each.identity.user == identity.user]
        if len(of_user) >= MOST_OF_A_USER:
            del self._kept[of_user[0]]
        elif len(self._kept) >= self._most:
            self._kept.popitem(last=False)
        token = self._mark + secrets.token_urlsafe(TOKEN_BYTES)
        self._kept[_key(token)] = Session(identity, proof, now_ns, now_ns)
        return token

    def find(self, token: str, now_ns: int) -> Session | None:
        """The session, which counts as used by this."""
        key = _key(token)
        found = self._kept.get(key)
        if found is None:
            return None
        if self._is_over(found, now_ns):
            del self._kept[key]
            return None
        found.used_ns = now_ns
        self._kept.move_to_end(key)
        return found

    def peek(self, token: str, now_ns: int) -> Session | None:
        """The session, which isn't used by this."""
        found = self._kept.get(_key(token))
        return None if found is None or self._is_over(found, now_ns) else found

    def lasts(self, session: Session, now_ns: int) -> bool:
        """Whether it is still one; asking doesn't use it."""
        return any(each is session for each in self._kept.values()) and not self._is_over(session, now_ns)

    def end(self, token: str) -> bool:
        """Forget it; whether there was one."""
        return self._kept.pop(_key(token), None) is not None

    def _is_over(self, session: Session, now_ns: int) -> bool:
        return now_ns - session.used_ns >= self.idle_ns or now_ns - session.began_ns >= self.lifetime_ns

    def _sweep(self, now_ns: int) -> None:
        for key in [key for key, each in self._kept.items() if self._is_over(each, now_ns)]:
            del self._kept[key]


def _key(token: str) -> bytes:
    """What is looked up: how long that takes says nothing about tokens there are."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
