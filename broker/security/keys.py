"""An issuer's public keys: a JWKS (RFC 7517) in a file, or where the issuer publishes it.

Keys that are fetched are kept for some minutes, and asked for again when a token names one that isn't
there, but not more often than every ten seconds, whatever tokens come.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import jwt

from broker.errors import OperatorError

LARGEST_BYTES = 256 << 10
MOST_KEYS = 100
FRESH_S = 300.0
AGAIN_S = 10.0
FETCH_TIMEOUT_S = 5.0


class Keys(Protocol):
    """Where keys are looked up; may take as long as a request over the network."""

    def find(self, kid: object, algorithm: object, allowed: Sequence[str]) -> jwt.PyJWK:
        """The key that a token's head means. jwt.PyJWTError if there is none."""
        ...


class KeyFile:
    """A JWKS in a file, read once."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._keys = parsed(file.read(LARGEST_BYTES + 1))
        except OSError as error:
            raise OperatorError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise OperatorError(f"{path}: {error}") from error

    def find(self, kid: object, algorithm: object, allowed: Sequence[str]) -> jwt.PyJWK:
        """The key of that name; the only one there is if the token names none."""
        return chosen(self._keys, kid, algorithm, allowed)


class KeyUrl:
    """The JWKS behind a URL, fetched when it is needed. Any thread may ask; one fetches for all."""

    def __init__(
        self,
        url: str,
        fetch: Callable[[str], bytes] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = check_url(url)
        self._fetch = fetch or fetched
        self._now = now
        self._keys: list[jwt.PyJWK] = []
        self._asked_s = self._got_s = float("-inf")
        self._fetching = threading.Lock()

    def find(self, kid: object, algorithm: object, allowed: Sequence[str]) -> jwt.PyJWK:
        """The same; keys that are older than some minutes are fetched before."""
        seen_s = self._got_s
        if self._now() - seen_s > FRESH_S:
            self._renew(seen_s)
        try:
            return chosen(self._keys, kid, algorithm, allowed)
        except jwt.PyJWTError:
            if not self._renew(seen_s):
                raise
            return chosen(self._keys, kid, algorithm, allowed)

    def _renew(self, seen_s: float) -> bool:
        """Whether there are newer keys now than those got at ``seen_s``. While the issuer can't be reached
        the old ones hold.
        """
        with self._fetching:
            return self._got_s != seen_s or self._ask()

    def _ask(self) -> bool:
        now_s = self._now()
        if now_s - self._asked_s < AGAIN_S:
            return False
        self._asked_s = now_s
        try:
            self._keys = parsed(self._fetch(self.url))
        except (OSError, ValueError) as fault:
            if not self._keys:
                raise jwt.PyJWKClientError(f"no keys from {self.url}: {type(fault).__name__}") from fault
            return False
        self._got_s = now_s
        return True


def parsed(raw: bytes) -> list[jwt.PyJWK]:
    """The public keys of a JWKS; what this version can't use is left out. ValueError if it is none."""
    if len(raw) > LARGEST_BYTES:
        raise ValueError(f"larger than {LARGEST_BYTES} bytes")
    try:
        listed = json.loads(raw)["keys"]
        found = [key for key in map(_key, listed[:MOST_KEYS]) if key is not None]
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError):
        raise ValueError("no JWKS: an object with a list of 'keys' is expected") from None
    if not found:
        raise ValueError("a JWKS without any public key that can be used")
    return found


def _key(value: dict[str, object]) -> jwt.PyJWK | None:
    if value.get("kty") not in ("RSA", "EC", "OKP") or value.get("use", "sig") != "sig":
        return None
    try:
        return jwt.PyJWK(value)
    except jwt.PyJWTError:
        return None


def chosen(keys: Sequence[jwt.PyJWK], kid: object, algorithm: object, allowed: Sequence[str]) -> jwt.PyJWK:
    """The key a token's head means, if its algorithm is allowed and the key's own."""
    if algorithm not in allowed:
        raise jwt.InvalidAlgorithmError("The algorithm is not one that is allowed")
    named = [key for key in keys if kid is None or key.key_id == kid]
    if len(named) != 1:
        raise jwt.InvalidKeyError("No key of that name" if kid else "The token names none of several keys")
    return named[0]


def check_url(url: str) -> str:
    """An https URL, or one of this machine; OperatorError for anything else."""
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        raise OperatorError(f"{url!r}: keys are fetched by https only")
    return url


class _NoRedirect(HTTPRedirectHandler):
    """Whoever answers for the issuer can't send us elsewhere."""

    def redirect_request(self, *_: object) -> None:
        return None


def fetched(url: str) -> bytes:
    """What the URL gives. OSError (URLError too) if not all of it comes in time."""
    until_s = time.monotonic() + FETCH_TIMEOUT_S
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - check_url has seen it
    try:
        with build_opener(_NoRedirect).open(request, timeout=FETCH_TIMEOUT_S) as answer:
            found = b""
            while len(found) <= LARGEST_BYTES and (part := answer.read1(LARGEST_BYTES)):
                found += part
                if time.monotonic() > until_s:
                    raise TimeoutError("the keys come too slowly")
            return found
    except URLError as fault:
        raise OSError(str(fault.reason)) from fault
