"""Who a token speaks for: JSON web tokens (RFC 7519) that a trusted issuer has signed.

Nothing of a token is believed before its signature holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jwt

from broker.security.exchange import TokenError
from broker.security.identity import Identity
from broker.security.keys import Keys
from broker.security.users import LONGEST_NAME, is_name

MOST_GROUPS = 200


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token has to say to be believed; an empty ``groups_claim`` means that it gives none."""

    issuer: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    user_claim: str = "sub"
    groups_claim: str = "groups"
    leeway_s: int = 30


class Tokens:
    """Checks tokens by one issuer's rules and keys. Asks for the keys: never on the reactor's thread."""

    def __init__(self, rules: TokenRules, keys: Keys, now: Callable[[], float] = time.time) -> None:
        self.rules = rules
        self._keys = keys
        self._now = now

    def identify(self, token: str, mechanism: str) -> tuple[Identity, float]:
        """Who it speaks for, and for how many seconds still; TokenError if for nobody."""
        rules = self.rules
        try:
            header = jwt.get_unverified_header(token)
            # RFC 7515 §4.1.11: it names what has to be understood, and PyJWT doesn't look.
            if "crit" in header:
                raise TokenError("its head has a 'crit', of which nothing is understood here")
            key = self._keys.find(header.get("kid"), header.get("alg"), rules.algorithms)
            claims = jwt.decode(
                token,
                key,
                algorithms=list(rules.algorithms),
                issuer=rules.issuer,
                audience=list(rules.audience),
                leeway=rules.leeway_s,
                options={"require": ["exp", "iss", "aud", rules.user_claim]},
            )
            left_s = float(claims["exp"]) + rules.leeway_s - self._now()
        except jwt.PyJWTError as fault:
            raise TokenError(f"{type(fault).__name__}: {fault}"[:200]) from None
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as fault:
            raise TokenError(f"no token: {type(fault).__name__}") from None
        return Identity(_user(claims, rules), _groups(claims, rules), mechanism), left_s


def _user(claims: Mapping[str, object], rules: TokenRules) -> str:
    """As the issuer writes it: prepared, two subjects that it tells apart could be one user."""
    value = claims[rules.user_claim]
    if not isinstance(value, str) or len(value) > LONGEST_NAME or not is_name(value):
        raise TokenError(f"its claim {rules.user_claim!r} is no user's name")
    return value


def _groups(claims: Mapping[str, object], rules: TokenRules) -> frozenset[str]:
    """A list of names, or one text with spaces between them (as in ``scope``)."""
    value = claims.get(rules.groups_claim, ()) if rules.groups_claim else ()
    names = value.split() if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return frozenset()
    if len(names) > MOST_GROUPS:
        raise TokenError(f"it is in more than {MOST_GROUPS} groups")
    return frozenset(name for name in names if isinstance(name, str) and name)
