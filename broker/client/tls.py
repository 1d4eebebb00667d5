"""TLS as a client speaks it: the broker's name is checked, always, and there is no way back to plain AMQP.

Whom to trust and who to be come from a caller or from SLUICE_CA, SLUICE_CERT and SLUICE_KEY; without the
first the system's authorities are trusted, or those of SSL_CERT_FILE.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from broker.client.errors import ClientError, ClientTimeoutError, ConnectionLostError
from broker.client.url import BrokerUrl
from broker.security.tlsstream import TlsError, TlsStream

CA, CERTIFICATE, KEY = "SLUICE_CA", "SLUICE_CERT", "SLUICE_KEY"


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM files: whom to trust, and a client's own certificate and key."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def of_environment(cls) -> Credentials:
        """Those of the variables above."""
        found = (os.environ.get(name) for name in (CA, CERTIFICATE, KEY))
        return cls(*(Path(each) if each else None for each in found))


def context_of(credentials: Credentials) -> ssl.SSLContext:
    """TLS 1.2 at least, a verified certificate and the right name on it. ClientError if a file is no good."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if credentials.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(credentials.ca)
    except OSError as fault:
        _refuse(credentials.ca, fault)
    certificate = credentials.certificate
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, credentials.key, password=_no_password)
        except OSError as fault:
            _refuse(f"{certificate} and its key", fault)
    elif credentials.key is not None:
        raise ClientError(f"{credentials.key}: a key without its certificate")
    return context


def secured(
    connected: socket.socket, url: BrokerUrl, credentials: Credentials | None, timeout_s: float
) -> TlsStream:
    """The TLS of a connected, non-blocking socket, its handshake done. ClientError if it can't be."""
    context = context_of(credentials or Credentials.of_environment())
    stream = TlsStream(connected.fileno(), context, server_side=False, server_hostname=url.host)
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    try:
        while not stream.shake():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ClientTimeoutError(f"{url} did not complete the TLS handshake within {timeout_s:g} s")
            poll.poll(left_s * 1000)
    except TlsError as fault:
        raise lost(url, fault) from None
    return stream


def lost(url: object, fault: TlsError) -> ConnectionLostError:
    """What a client is told of TLS that failed, in the handshake or, with TLS 1.3, right behind it."""
    hint = " (is TLS spoken there?)" if fault.reason in ("wrong version number", "ended") else ""
    return ConnectionLostError(f"cannot connect to {url}: TLS: {fault}{hint}")


def _no_password() -> str:
    raise ClientError("the client's key has a password; this client takes keys without one")


def _refuse(what: object, fault: OSError) -> NoReturn:
    reason = getattr(fault, "reason", None) or fault.strerror or "no PEM file"
    raise ClientError(f"{what}: {str(reason).lower().replace('_', ' ')}") from None
