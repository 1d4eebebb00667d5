"""What a certificate says of itself, read from its DER (RFC 5280 §4.1): so much as an operator is warned of.

``ssl`` shows certificates only once a peer has given one, and never their keys' sizes. Nothing here decides
whether a certificate is trusted: that is OpenSSL's.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from broker.errors import OperatorError

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_INTEGER, _BIT_STRING, _OID, _SEQUENCE, _VERSION = 0x02, 0x03, 0x06, 0x30, 0xA0
_UTC_TIME = 0x17

RSA, EC = "RSA", "EC"
_KINDS = {
    "1.2.840.113549.1.1.1": RSA,
    "1.2.840.113549.1.1.10": RSA,
    "1.2.840.10045.2.1": EC,
    "1.2.840.10040.4.1": "DSA",
    "1.3.101.112": "Ed25519",
    "1.3.101.113": "Ed448",
}
_CURVE_BITS = {
    "1.2.840.10045.3.1.1": 192,
    "1.3.132.0.33": 224,
    "1.2.840.10045.3.1.7": 256,
    "1.3.132.0.10": 256,
    "1.3.132.0.34": 384,
    "1.3.132.0.35": 521,
}
_WEAK_SIGNATURES = {
    "1.2.840.113549.1.1.4": "MD5",
    "1.2.840.113549.1.1.5": "SHA-1",
    "1.2.840.10045.4.1": "SHA-1",
    "1.2.840.10040.4.3": "SHA-1",
}
# NIST SP 800-57: 112 bits of security, which holds until 2030.
_LEAST_BITS = {RSA: 2048, EC: 224, "DSA": 1 << 20}


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of one certificate; ``bits`` of its key, 0 where the kind says it all."""

    expires: datetime
    begins: datetime
    kind: str
    bits: int
    weak_signature: str

    def weakness(self) -> str:
        """What is too weak about it; empty for nothing."""
        least = _LEAST_BITS.get(self.kind, 0)
        if self.kind == "DSA":
            return "a DSA key, which TLS 1.3 doesn't know"
        if self.bits and self.bits < least:
            return f"{self.kind} key of {self.bits} bits; {least} are the least that holds"
        if self.weak_signature:
            return f"signed with {self.weak_signature}, which can be forged"
        return ""


def read(path: Path) -> list[Certificate]:
    """Every certificate in a PEM file, in its order. OperatorError if there is none that can be read."""
    try:
        text = path.read_text("ascii", "replace")
    except OSError as fault:
        raise OperatorError(f"{path}: {fault.strerror or fault}") from None
    blocks = [block.partition(_END)[0] for block in text.split(_BEGIN)[1:]]
    if not blocks:
        raise OperatorError(f"{path}: no PEM certificate in it")
    try:
        return [parse(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{block}{_END}")) for block in blocks]
    except (ValueError, IndexError) as fault:
        raise OperatorError(f"{path}: a certificate that can't be read: {fault}") from None


def parse(der: bytes) -> Certificate:
    """One certificate's facts. ValueError if it isn't one."""
    outer = _Reader(_Reader(der).value(_SEQUENCE))
    to_be_signed = _Reader(outer.value(_SEQUENCE))
    signature = _oid(_Reader(outer.value(_SEQUENCE)).value(_OID))
    if to_be_signed.tag == _VERSION:
        to_be_signed.value(_VERSION)
    to_be_signed.value(_INTEGER)
    to_be_signed.value(_SEQUENCE)  # the signature's algorithm once more
    to_be_signed.value(_SEQUENCE)  # issuer
    validity = _Reader(to_be_signed.value(_SEQUENCE))
    begins, expires = validity.time(), validity.time()
    to_be_signed.value(_SEQUENCE)  # subject
    kind, bits = _key(_Reader(to_be_signed.value(_SEQUENCE)))
    return Certificate(expires, begins, kind, bits, _WEAK_SIGNATURES.get(signature, ""))


def _key(info: _Reader) -> tuple[str, int]:
    algorithm = _Reader(info.value(_SEQUENCE))
    oid = _oid(algorithm.value(_OID))
    kind = _KINDS.get(oid, f"unknown key ({oid})")
    if kind == EC:
        named = algorithm.tag == _OID
        return kind, _CURVE_BITS.get(_oid(algorithm.value(_OID)), 0) if named else 0
    if kind == RSA:
        modulus = _Reader(_Reader(info.value(_BIT_STRING)[1:]).value(_SEQUENCE)).value(_INTEGER)
        return kind, int.from_bytes(modulus, "big").bit_length()
    return kind, 0


class _Reader:
    """Values of DER one after the other (X.690 §8.1)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def tag(self) -> int:
        """Of the next value; -1 at the end."""
        return self._data[self._at] if self._at < len(self._data) else -1

    def value(self, tag: int) -> bytes:
        """The next value, which has to have this tag."""
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} where {tag:#x} was expected")
        at = self._at + 2
        length = self._data[self._at + 1]
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(self._data[at : at + size], "big")
            at += size
        self._at = at + length
        if self._at > len(self._data):
            raise ValueError("cut off")
        return self._data[at : self._at]

    def time(self) -> datetime:
        """UTCTime to 2049, GeneralizedTime beyond (RFC 5280 §4.1.2.5)."""
        short = self.tag == _UTC_TIME
        text = self.value(self.tag).decode("ascii")
        if short:
            text = ("20" if int(text[:2]) < 50 else "19") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _oid(value: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in value:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
