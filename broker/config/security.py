"""The `security` section of the broker's file, and the words it knows: values, nothing that acts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker.config.fields import Count, Duration, Flag, NonEmptyText, PathType, Several, Word, row

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

USUAL_ALGORITHMS = ("RS256", "ES256")

LONGEST_SESSION_MS = 30 * 86_400_000

# Whether who reads the metrics has to say who it is.
OPEN, AUTHENTICATED = "open", "authenticated"


@dataclass(frozen=True, slots=True)
class Security:
    """The `security` section: authentication, and the files of users and of rules.

    ``allow_anonymous`` None: on loopback, while there are neither users nor an issuer. ``oauth_jwks`` is a
    file or an https URL. ``acl`` None: everybody may do everything.
    """

    acl: Path | None = row(PathType(), None, "The file of rules who may do what; without one, all may all")
    users: Path | None = row(
        PathType(),
        None,
        "File of users, which `sluice users` writes; nobody but the user who runs the broker may read it",
    )
    allow_anonymous: bool | None = row(
        Flag(),
        None,
        "true: whoever reaches the port may come in without saying who it is; false: nobody may",
        shown="on loopback, while there are neither users nor an issuer",
    )
    mechanisms: tuple[str, ...] = row(
        Several(Word(MECHANISMS), 1),
        USUAL,
        "The SASL mechanisms that may be offered, each where it makes sense",
        shown="all but SCRAM-SHA-1",
    )
    plain_without_tls: bool = row(
        Flag(),
        False,
        "true: passwords and tokens are also taken where everybody on the way can read them",
    )
    oauth_issuer: str = row(NonEmptyText(1000), "", "Whose tokens are believed: their claim `iss`")
    oauth_audience: tuple[str, ...] = row(
        Several(NonEmptyText(1000), 1),
        (),
        "For whom they must have been made: one of these is in their claim `aud`",
    )
    oauth_jwks: str = row(NonEmptyText(1000), "", "The issuer's public keys: a file, or an https URL")
    oauth_algorithms: tuple[str, ...] = row(
        Several(Word(ALGORITHMS), 1), USUAL_ALGORITHMS, "How they may be signed"
    )
    oauth_user_claim: str = row(NonEmptyText(100), "sub", "The claim that names the user")
    oauth_groups_claim: str = row(NonEmptyText(100), "groups", "The claim that names the user's groups")
    free_attempts: int = row(Count(1, 1000), 5, "Failed attempts from one address until it has to wait")
    first_pause_ms: int = row(Duration(1), 1_000, "How long it then waits; each failure doubles it")
    longest_pause_ms: int = row(
        Duration(), 60_000, "The longest it has to wait; 0: it never has to", shown="60 s"
    )
    metrics: str = row(
        Word((OPEN, AUTHENTICATED)),
        "",
        "Whether who reads `/metrics` has to say who it is",
        shown="authenticated where there are users or an issuer and HTTP is not on loopback",
    )
    session_idle_ms: int = row(
        Duration(1000, LONGEST_SESSION_MS),
        30 * 60_000,
        "A login of the console ends when it was not used for so long",
    )
    session_lifetime_ms: int = row(
        Duration(1000, LONGEST_SESSION_MS),
        12 * 3_600_000,
        "A login of the console ends after so long, used or not",
    )

    def metrics_are_open(self, loopback: bool) -> bool:
        """Whether metrics need no login; by default on loopback only, or while nobody could log in."""
        return self.metrics == OPEN if self.metrics else loopback or not self.is_configured

    @property
    def is_configured(self) -> bool:
        """Whether anybody can log in."""
        return self.users is not None or bool(self.oauth_issuer)
