"""Certificates to try TLS with: an authority of one's own, a server's and a client's.

The one file that needs the `cryptography` library, and only where it is used. Keys are EC P-256: a handshake
with one takes a tenth of what RSA takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.errors import OperatorError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName

DAYS = 365
# Clocks of two machines differ.
BEFORE = timedelta(hours=1)
AUTHORITY, SERVER, CLIENT = "ca", "server", "client"


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its key."""

    certificate: Certificate
    key: Any

    def pem(self) -> bytes:
        """The certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: str = "") -> bytes:
        """The key, encrypted if there is a password."""
        from cryptography.hazmat.primitives import serialization as form

        hidden: Any = form.BestAvailableEncryption(password.encode()) if password else form.NoEncryption()
        written: bytes = self.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, hidden)
        return written

    def write(self, folder: Path, name: str, password: str = "") -> tuple[Path, Path]:
        """``name``.pem and ``name``-key.pem in a folder; nobody else may read the key."""
        certificate, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
        certificate.write_bytes(self.pem())
        _write_secret(key, self.key_pem(password))
        return certificate, key


def authority(name: str = "Sluice development CA", days: int = DAYS) -> IssuedCertificate:
    """One that signs itself, and nothing but servers' and clients' certificates."""
    from cryptography import x509

    key = _key()
    subject = _name(name)
    builder = _builder(subject, subject, key, -BEFORE, timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return IssuedCertificate(_signed(builder, key, key), key)


def leaf(
    by: IssuedCertificate,
    common_name: str,
    names: Sequence[str] = (),
    emails: Sequence[str] = (),
    *,
    client: bool = False,
    begins: timedelta = -BEFORE,
    lasts: timedelta = timedelta(days=DAYS),
    key: Any = None,
) -> IssuedCertificate:
    """A server's certificate, or a client's; ``names`` are hosts and addresses it is for."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose

    key = key or _key()
    builder = _builder(_name(common_name), by.certificate.subject, key, begins, lasts)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    purpose = Purpose.CLIENT_AUTH if client else Purpose.SERVER_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
    builder = builder.add_extension(known, critical=False)
    alternatives = [*map(_general, names), *map(x509.RFC822Name, emails)]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return IssuedCertificate(_signed(builder, key, by.key), key)


def write_all(folder: Path, hosts: Sequence[str], user: str, days: int = DAYS) -> list[Path]:
    """An authority, a server's certificate for these hosts and a client's for a user; what was written.

    An authority that is there signs again. OperatorError if a file can't be read or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        by = _present(folder)
        written: list[Path] = []
        if by is None:
            by = authority(days=days)
            written += by.write(folder, AUTHORITY)
        lasts = timedelta(days=days)
        written += leaf(by, hosts[0], hosts, lasts=lasts).write(folder, SERVER)
        written += leaf(by, user, client=True, lasts=lasts).write(folder, CLIENT)
    except OSError as fault:
        raise OperatorError(f"{fault.filename or folder}: {fault.strerror or fault}") from None
    return written


def _present(folder: Path) -> IssuedCertificate | None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate, key = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}-key.pem"
    if not certificate.exists() and not key.exists():
        return None
    try:
        loaded = load_pem_private_key(key.read_bytes(), None)
        return IssuedCertificate(x509.load_pem_x509_certificate(certificate.read_bytes()), loaded)
    except (ValueError, TypeError) as fault:
        raise OperatorError(f"{certificate}, {key}: no authority to sign with: {fault}") from None


def _key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: Any, issuer: Any, key: Any, begins: timedelta, lasts: timedelta) -> CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: CertificateBuilder, key: Any, by: Any) -> Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(by, hashes.SHA256())


def _general(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_secret(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
