"""The words of security's settings and what they come to: values, nothing that acts.

The parser of the broker's file, the documentation and the room itself take them from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# The server's favourite first. Everything a client may be offered stands here.
MECHANISMS = (
    "EXTERNAL",
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "OAUTHBEARER",
    "XOAUTH2",
    "SCRAM-SHA-1",
    "PLAIN",
    "ANONYMOUS",
)
# Without a word of the operator's: SHA-1 is for clients that know nothing better.
USUAL = tuple(name for name in MECHANISMS if name != "SCRAM-SHA-1")

# Signatures of public keys only: with a shared secret whoever can check a token could make one.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)

# Whether who reads the metrics has to say who it is.
OPEN, AUTHENTICATED = "open", "authenticated"


@dataclass(frozen=True, slots=True)
class Security:
    """Who may come in, and what they may do, as the broker's file says it.

    ``allow_anonymous`` None: on loopback, while there are neither users nor an issuer. ``oauth_jwks`` is a
    file or an https URL. ``acl`` None: everybody may do everything.
    """

    users: Path | None = None
    allow_anonymous: bool | None = None
    mechanisms: tuple[str, ...] = USUAL
    plain_without_tls: bool = False
    oauth_issuer: str = ""
    oauth_audience: tuple[str, ...] = ()
    oauth_jwks: str = ""
    oauth_algorithms: tuple[str, ...] = ("RS256", "ES256")
    oauth_user_claim: str = "sub"
    oauth_groups_claim: str = "groups"
    free_attempts: int = 5
    first_pause_ms: int = 1_000
    longest_pause_ms: int = 60_000
    acl: Path | None = None
    metrics: str = ""
    session_idle_ms: int = 30 * 60_000
    session_lifetime_ms: int = 12 * 3_600_000

    def metrics_are_open(self, loopback: bool) -> bool:
        """Whether who reads the metrics need not say who it is; without a word on it, on loopback only, or
        while nobody could say.
        """
        return self.metrics == OPEN if self.metrics else loopback or not self.is_configured

    @property
    def is_configured(self) -> bool:
        """Whether anybody can say who it is."""
        return self.users is not None or bool(self.oauth_issuer)
