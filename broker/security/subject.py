"""Which user a client's certificate stands for: one field of it, by one rule, and no guessing.

A certificate is what ``ssl.SSLSocket.getpeercert`` shows of one that was verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.config.tls import COMMON_NAME, DNS, EMAIL, SUBJECT, URI
from broker.security.users import is_name

# RFC 4514 §3, of the attribute types that have short names there; others bear OpenSSL's long ones.
_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED = frozenset(',+"\\<>;=')

Fields = Mapping[str, Any]


def user_of(certificate: Fields, rule: str) -> str:
    """The user's name; empty if the field isn't there, is there twice, or is no name."""
    found = _FINDERS[rule](certificate)
    if len(found) != 1:
        return ""
    name = found[0]
    return name if is_name(name) and name == name.strip() else ""


def subject(certificate: Fields) -> str:
    """The distinguished name as RFC 4514 writes it: the last part first."""
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in relative)
        for relative in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _common_names(certificate: Fields) -> list[str]:
    pairs = (pair for relative in certificate.get("subject", ()) for pair in relative)
    return [value for kind, value in pairs if kind == "commonName"]


def _subjects(certificate: Fields) -> list[str]:
    found = subject(certificate)
    return [found] if found else []


def _alternative(wanted: str) -> Callable[[Fields], list[str]]:
    def find(certificate: Fields) -> list[str]:
        return [value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted]

    return find


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text


_FINDERS: dict[str, Callable[[Fields], list[str]]] = {
    COMMON_NAME: _common_names,
    SUBJECT: _subjects,
    EMAIL: _alternative("email"),
    DNS: _alternative("DNS"),
    URI: _alternative("URI"),
}
