"""TLS as a server speaks it: contexts made of files, replaced as a whole when those are read again.

``ssl.SSLContext`` from certificates, keys and authorities; what is wrong with them is told as an operator can
mend it. Nothing here opens a socket.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from broker.config.tls import NONE, OPTIONAL, REQUIRED, Identification, Tls
from broker.errors import OperatorError
from broker.security.certificate import Certificate, read
from broker.security.subject import user_of

SOON = timedelta(days=30)
LONGEST_PASSWORD = 1024

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_ASKED = {NONE: ssl.CERT_NONE, OPTIONAL: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}


@dataclass(slots=True)
class HandshakeCounts:
    """Of one broker's handshakes since its start, over all listeners."""

    completed: dict[str, int] = field(default_factory=dict)  # by version
    failed: dict[str, int] = field(default_factory=dict)  # by reason

    def count_completed(self, version: str) -> None:
        """One more handshake is through."""
        self.completed[version] = self.completed.get(version, 0) + 1

    def count_failed(self, reason: str) -> None:
        """One more has failed; OpenSSL's reasons are few."""
        self.failed[reason] = self.failed.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class Contexts:
    """What one reading of the files came to. Browsers would ask their users for a certificate, so that of
    the HTTP port lets clients without one in where that of AMQP doesn't.
    """

    settings: Tls
    amqp: ssl.SSLContext
    http: ssl.SSLContext
    # When the first of the broker's own certificates does, in seconds since 1970.
    expires: float

    @classmethod
    def of(cls, settings: Tls) -> Contexts:
        """OperatorError names a file that is no good."""
        amqp = server_context(settings)
        strict = settings.client_certificates == REQUIRED
        http = server_context(replace(settings, client_certificates=OPTIONAL)) if strict else amqp
        expires = min(each.expires for _, each in own_certificates(settings)).timestamp()
        return cls(settings, amqp, http, expires)


class ServerTls:
    """What listeners hand to their connections; ``now`` may be replaced: who is connected keeps theirs."""

    def __init__(self, settings: Tls) -> None:
        self.counts = HandshakeCounts()
        self.now = Contexts.of(settings)

    def counted(self) -> tuple[dict[str, int], dict[str, int], float]:
        """Completed handshakes by version, failed ones by reason, and when a certificate expires."""
        return dict(self.counts.completed), dict(self.counts.failed), self.now.expires

    def user(self, certificate: Mapping[str, Any] | None) -> str:
        """Whom a verified certificate stands for; empty for nobody."""
        if not certificate or has_expired(certificate):
            return ""
        return user_of(certificate, self.now.settings.user_from)


def server_context(settings: Tls) -> ssl.SSLContext:
    """A context for the accepting side. OperatorError names the file and what is wrong with it."""
    own = settings.identification
    if own is None:
        raise OperatorError("tls.certificate is missing")
    context = _context(settings, own)
    others = {
        name: _context(settings, each.identification) for each in settings.server_names for name in each.names
    }
    if others:
        context.sni_callback = _chooser(others)
    return context


def expires_s(certificate: Mapping[str, Any] | None) -> float:
    """When a verified certificate is over, in seconds since the epoch; 0 without one."""
    return float(ssl.cert_time_to_seconds(certificate["notAfter"])) if certificate else 0.0


def has_expired(certificate: Mapping[str, Any]) -> bool:
    """Whether a certificate that was verified once is over by now: a resumed session isn't verified again."""
    return bool(ssl.cert_time_to_seconds(certificate["notAfter"]) < datetime.now(UTC).timestamp())


def own_certificates(settings: Tls) -> list[tuple[Path, Certificate]]:
    """Every certificate of the broker's own, its chains' included, and the file it is in."""
    own = settings.identification
    files = [] if own is None else [own.certificate]
    files += [each.identification.certificate for each in settings.server_names]
    return [(path, each) for path in files for each in read(path)]


def warnings(settings: Tls, now: datetime) -> list[str]:
    """What an operator should know of its files: what expires, what is weak, what others can read."""
    found = [*_of_certificates(own_certificates(settings), now)]
    if settings.client_ca is not None:
        found += _of_certificates([(settings.client_ca, each) for each in read(settings.client_ca)], now)
    own = settings.identification
    keys = [] if own is None else [own]
    keys += [each.identification for each in settings.server_names]
    for each in keys:
        found += [_readable(path) for path in (each.key, each.key_password_file) if path is not None]
    return list(dict.fromkeys(filter(None, found)))


def _of_certificates(certificates: list[tuple[Path, Certificate]], now: datetime) -> list[str]:
    found = []
    for path, each in certificates:
        day = f"{each.expires:%Y-%m-%d}"
        if each.expires <= now:
            found.append(f"{path}: the certificate expired on {day}")
        elif each.begins > now:
            found.append(f"{path}: the certificate begins on {each.begins:%Y-%m-%d} only")
        elif each.expires - now < SOON:
            found.append(f"{path}: the certificate expires on {day}, in {(each.expires - now).days} days")
        if each.weakness():
            found.append(f"{path}: {each.weakness()}")
    return found


def _readable(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"{path}: others than its owner may read it (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}"
    return ""


def _context(settings: Tls, own: Identification) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # No tickets of TLS 1.3: what a handshake saves by them is little, and each connection would hold two.
    context.num_tickets = 0
    try:
        context.set_ciphers(settings.ciphers)
    except ssl.SSLError:
        raise OperatorError(f"tls.ciphers: no such cipher here: {settings.ciphers}") from None
    for path in (own.certificate, own.key):
        _must_open(path)
    asked: list[str] = []

    def password() -> str:
        asked.append(_password(own))
        return asked[0]

    try:
        context.load_cert_chain(own.certificate, own.key, password=password)
    except ssl.SSLError as fault:
        raise OperatorError(_mismatch(own, fault, bool(asked))) from None
    _ask_for_certificates(context, settings)
    return context


def _ask_for_certificates(context: ssl.SSLContext, settings: Tls) -> None:
    """OpenSSL verifies with the authorities of the context that a name has chosen, so each needs them."""
    if settings.client_certificates == NONE:
        return
    if settings.client_ca is None:
        raise OperatorError("tls.client_ca is missing: nobody could sign a client's certificate")
    try:
        context.load_verify_locations(cafile=settings.client_ca)
    except OSError as fault:
        raise OperatorError(f"{settings.client_ca}: {_reason(fault)}") from None
    context.verify_mode = _ASKED[settings.client_certificates]


def _must_open(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as fault:
        raise OperatorError(f"{path}: {fault.strerror or fault}") from None


def _password(own: Identification) -> str:
    """Asked for where the key is encrypted; never a question on a terminal."""
    if own.key_password_file is None:
        raise OperatorError(f"{own.key}: the key has a password, and tls.key_password_file is not set")
    try:
        lines = own.key_password_file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise OperatorError(f"{own.key_password_file}: {_reason(fault)}") from None
    if not lines or not 0 < len(lines[0]) <= LONGEST_PASSWORD:
        raise OperatorError(f"{own.key_password_file}: no password in its first line")
    return lines[0]


def _mismatch(own: Identification, fault: ssl.SSLError, locked: bool) -> str:
    reason = fault.reason or ""
    if reason == "KEY_VALUES_MISMATCH" or reason == "KEY_TYPE_MISMATCH":
        return f"{own.key}: the key is not that of the certificate in {own.certificate}"
    if reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return f"{own.certificate}: too weak for this OpenSSL ({reason.lower().replace('_', ' ')})"
    if locked:
        return f"{own.key}: the password in {own.key_password_file} does not open the key"
    return f"{own.certificate} and {own.key}: not a PEM certificate and its key ({_reason(fault)})"


def _reason(fault: Exception) -> str:
    if isinstance(fault, ssl.SSLError):
        return (fault.reason or "not understood").lower().replace("_", " ")
    return getattr(fault, "strerror", None) or str(fault)


def _chooser(others: Mapping[str, ssl.SSLContext]) -> Any:
    """What gives a client the certificate of the name it asks for, or the first for names nobody knows."""

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        asked = (name or "").lower().rstrip(".")
        found = others.get(asked) or others.get("*." + asked.partition(".")[2])
        if found is not None:
            connection.context = found

    return choose
