"""Mechanisms that carry a token: OAUTHBEARER (RFC 7628) and XOAUTH2, which came before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.exchange import Accepted, Challenge, Refused, Step, TokenError, Work
from broker.security.users import prepared

if TYPE_CHECKING:
    from broker.security.tokens import Tokens

LONGEST_TOKEN = 12_288
_SEPARATOR = "\x01"


class Bearer:
    """One attempt. Who the token speaks for is who it is: a name beside it has to be that one.

    A refusal is SASL's outcome at once, without the challenge RFC 7628 §3.2.3 explains it with.
    """

    def __init__(self, mechanism: str, tokens: Tokens) -> None:
        self._mechanism = mechanism
        self._tokens = tokens

    def respond(self, response: bytes | None) -> Step:
        """The one message."""
        if response is None:
            return Challenge(b"")
        try:
            text = response.decode()
            name, token = _oauthbearer(text) if self._mechanism == "OAUTHBEARER" else _xoauth2(text)
        except ValueError:
            return Refused(f"{self._mechanism}: malformed", is_guess=False)
        return Work(lambda: self._check(name, token))

    def _check(self, name: str, token: str) -> Accepted | Refused:
        try:
            identity, left_s = self._tokens.identify(token, self._mechanism)
        except TokenError as fault:
            return Refused(f"{self._mechanism}: {fault}")
        if name and prepared(name) != identity.user:
            text = f"{self._mechanism}: the token is {identity.user!r}'s, who may not act as {name!r}"
            return Refused(text, is_guess=False)
        return Accepted(identity, seconds=left_s)


def _oauthbearer(text: str) -> tuple[str, str]:
    header, *pairs = text.split(_SEPARATOR)
    flag, name, rest = header.split(",")
    if flag not in ("n", "y") or rest or (name and not name.startswith("a=")):
        raise ValueError
    return name[2:].replace("=2C", ",").replace("=3D", "="), _token(pairs)


def _xoauth2(text: str) -> tuple[str, str]:
    first, *pairs = text.split(_SEPARATOR)
    if not first.startswith("user="):
        raise ValueError
    return first.removeprefix("user="), _token(pairs)


def _token(pairs: list[str]) -> str:
    if pairs[-2:] != ["", ""]:
        raise ValueError
    found = [value for key, _, value in (pair.partition("=") for pair in pairs) if key == "auth"]
    scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST_TOKEN:
        raise ValueError
    return token.strip()
