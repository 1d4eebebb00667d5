"""The `tls` section of the broker's file: certificates, names, and the user a certificate stands for.

Values and their parsers; no file is read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from broker.config.fields import (
    Field,
    PathType,
    Schema,
    Several,
    Word,
    object_schema,
    parse_items,
    row,
)
from broker.units import show

NONE, OPTIONAL, REQUIRED = "none", "optional", "required"
# The field of a client's certificate that is its user's name.
COMMON_NAME, SUBJECT, EMAIL, DNS, URI = "CN", "subject", "SAN email", "SAN dns", "SAN uri"
RULES = (COMMON_NAME, SUBJECT, EMAIL, DNS, URI)
VERSIONS = ("1.2", "1.3")
# Of TLS 1.2: forward secrecy and authenticated encryption only. Those of TLS 1.3 are all of that kind.
MODERN = "ECDHE+AESGCM:ECDHE+CHACHA20"

_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Identification:
    """A certificate with its chain, its key, and the file with the key's password, if it has one."""

    certificate: Path
    key: Path
    key_password_file: Path | None = None


@dataclass(frozen=True, slots=True)
class NamedIdentification:
    """One for clients that ask for one of these names; ``*.`` stands for one label (RFC 6125 §6.4.3)."""

    names: tuple[str, ...]
    identification: Identification


@dataclass(frozen=True, slots=True)
class VersionType:
    """``1.2`` or ``1.3``, which YAML takes for numbers."""

    label = "`1.2` or `1.3`"

    def parse(self, value: object) -> str:
        text = str(value) if isinstance(value, float) else value
        if text not in VERSIONS:
            raise ValueError(f"expected 1.2 or 1.3, not {show(value)}")
        return str(text)

    def schema(self) -> Schema:
        return {"enum": [*VERSIONS, *map(float, VERSIONS)]}


@dataclass(frozen=True, slots=True)
class DnsName:
    """A host's name, or ``*.`` before one."""

    label = "host name"

    def parse(self, value: object) -> str:
        text = value.lower().rstrip(".") if isinstance(value, str) else ""
        if len(text) > 253 or not _NAME.fullmatch(text):
            raise ValueError(f"expected a name such as mq.example.org or *.example.org, not {show(value)}")
        return text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$"}


@dataclass(frozen=True, slots=True)
class CiphersType:
    """OpenSSL's list of ciphers; whether they exist is seen when they are used."""

    label = "OpenSSL cipher list"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9+:!@=_, -]{1,2000}", value, re.ASCII):
            raise ValueError(f"expected OpenSSL's list of ciphers such as {MODERN}, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


NAMED_FIELDS = (
    Field("names", Several(DnsName(), 1), "required", "The names clients ask for (SNI); `*.` is one label"),
    Field("certificate", PathType(), "required", "As `tls.certificate`"),
    Field("key", PathType(), "the certificate's file", "As `tls.key`"),
    Field("key_password_file", PathType(), "none", "As `tls.key_password_file`"),
)


@dataclass(frozen=True, slots=True)
class NamedIdentificationType:
    """A mapping with the rows above."""

    label = "mapping"

    def parse(self, value: object) -> NamedIdentification:
        if not isinstance(value, dict):
            raise ValueError(f"expected a mapping with names and certificate, not {show(value)}")
        found = parse_items(value, NAMED_FIELDS)
        for name in ("names", "certificate"):
            if name not in found:
                raise ValueError(f"{name} is missing")
        certificate = cast("Path", found["certificate"])
        key_file = cast("Path", found.get("key", certificate))
        password = cast("Path | None", found.get("key_password_file"))
        return NamedIdentification(
            cast("tuple[str, ...]", found["names"]), Identification(certificate, key_file, password)
        )

    def schema(self) -> Schema:
        return {**object_schema(NAMED_FIELDS), "required": ["names", "certificate"]}


@dataclass(frozen=True, slots=True)
class Tls:
    """The `tls` section. Without a certificate there is no TLS."""

    certificate: Path | None = row(
        PathType(), None, "PEM file: the broker's certificate and those that sign it"
    )
    key: Path | None = row(PathType(), None, "PEM file of its key", shown="the certificate's file")
    key_password_file: Path | None = row(PathType(), None, "File whose first line is the key's password")
    server_names: tuple[NamedIdentification, ...] = row(
        Several(NamedIdentificationType()),
        (),
        "Other certificates, by the name a client asks for: names, certificate, key, key_password_file",
    )
    client_ca: Path | None = row(PathType(), None, "PEM file: who may sign clients' certificates")
    client_certificates: str = row(
        Word((NONE, OPTIONAL, REQUIRED)),
        NONE,
        "Whether AMQP clients are asked for a certificate, and whether they may do without",
        shown="none; optional with `tls.client_ca`",
    )
    user_from: str = row(
        Word(RULES), COMMON_NAME, "What of a client's certificate is its user's name, for SASL EXTERNAL"
    )
    min_version: str = row(VersionType(), "1.2", "The oldest TLS that is spoken")
    ciphers: str = row(
        CiphersType(),
        MODERN,
        "Ciphers of TLS 1.2; those of 1.3 are all fit and can't be chosen",
        shown=f"`{MODERN}`",
    )

    @property
    def identification(self) -> Identification | None:
        """The certificate of clients that ask for no other name; its key may stand in the same file."""
        if self.certificate is None:
            return None
        return Identification(self.certificate, self.key or self.certificate, self.key_password_file)
