"""From settings to what asks clients who they are; faults are the operator's and say where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker.config.security import Security
from broker.errors import ConfigError, OperatorError, Problem
from broker.security.authentication import Authentication
from broker.security.usersfile import load_users

if TYPE_CHECKING:
    from broker.security.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Listening:
    """An address somebody may come in by; ``origin`` is where it was set, empty for a default."""

    name: str
    url: str
    is_loopback: bool
    origin: str = ""


def authentication_of(security: Security) -> Authentication:
    """What the settings say, with the users and keys as their files are now. OperatorError on any fault."""
    return Authentication(
        users=None if security.users is None else load_users(security.users),
        tokens=_tokens(security),
        anonymous=security.allow_anonymous,
        mechanisms=security.mechanisms,
        plain_without_tls=security.plain_without_tls,
    )


def check_exposure(security: Security, places: Iterable[Listening]) -> None:
    """ConfigError if strangers could come in from other machines and nobody has said that they may."""
    if security.is_configured or security.allow_anonymous is not None:
        return
    problems = [
        Problem(
            place.origin or place.url,
            0,
            0,
            f"{place.name}: {place.url} can be reached from other machines, and nobody has to say there who"
            " they are: name a users' file in security.users (`sluice users add` makes one) or an issuer of"
            " tokens in security.oauth_issuer or, if everybody may come in, set security.allow_anonymous:"
            " true",
        )
        for place in places
        if not place.is_loopback
    ]
    if problems:
        raise ConfigError(tuple(problems))


def _tokens(security: Security) -> Tokens | None:
    given = (security.oauth_issuer, security.oauth_audience, security.oauth_jwks)
    if not any(given):
        return None
    if not all(given):
        names = ("oauth_issuer", "oauth_audience", "oauth_jwks")
        missing = [name for name, value in zip(names, given, strict=True) if not value]
        raise OperatorError(f"security: tokens are of no use without {' and '.join(missing)}")
    # Loaded only where there are tokens: with its cryptography it takes 100 ms and 10 MB.
    from broker.security.keys import KeyFile, KeyUrl
    from broker.security.tokens import TokenRules, Tokens

    where = security.oauth_jwks
    keys = KeyUrl(where) if "://" in where else KeyFile(Path(where))
    rules = TokenRules(
        issuer=security.oauth_issuer,
        audience=security.oauth_audience,
        algorithms=security.oauth_algorithms,
        user_claim=security.oauth_user_claim,
        groups_claim=security.oauth_groups_claim,
    )
    return Tokens(rules, keys)
