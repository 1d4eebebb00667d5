"""Certificates of every kind, and clients' sides of TLS that misbehave in ways no library would."""

from __future__ import annotations

import _ssl
import ctypes
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from broker.security.devcerts import IssuedCertificate, authority, leaf
from tests.wire.conftest import RunningBroker

NAMES = ("localhost", "127.0.0.1")
YESTERDAY = timedelta(days=-1)


@dataclass(frozen=True)
class Pki:
    """An authority and the files of what it has signed, in one folder."""

    folder: Path
    by: IssuedCertificate

    @classmethod
    def at(cls, folder: Path) -> Pki:
        """A new authority, and the broker's certificate for this machine."""
        folder.mkdir()
        pki = cls(folder, authority())
        pki.by.write(folder, "ca")
        pki.server("server")
        return pki

    @property
    def ca(self) -> Path:
        """Whom to trust."""
        return self.folder / "ca.pem"

    def server(self, file: str, names: tuple[str, ...] = NAMES) -> IssuedCertificate:
        """A server's certificate, in FILE.pem and FILE-key.pem."""
        made = leaf(self.by, names[0], names)
        made.write(self.folder, file)
        return made

    def client(
        self,
        file: str,
        user: str = "",
        *,
        expired: bool = False,
        by: IssuedCertificate | None = None,
        lasts: timedelta = timedelta(days=9),
    ) -> Path:
        """A client's certificate and key, in one file."""
        lasts = YESTERDAY if expired else lasts
        made = leaf(by or self.by, user or file, client=True, begins=timedelta(days=-3), lasts=lasts)
        path = self.folder / f"{file}-both.pem"
        path.write_bytes(made.pem() + made.key_pem())
        return path

    def section(self, **more: str) -> str:
        """The `tls` section of a broker's file."""
        rows = {"certificate": f"{self.folder}/server.pem", "key": f"{self.folder}/server-key.pem"} | more
        return "tls:\n" + "".join(f"  {name}: {value}\n" for name, value in rows.items())

    def context(self, certificate: Path | None = None, **versions: ssl.TLSVersion) -> ssl.SSLContext:
        """A client's context that trusts this authority; ``minimum`` and ``maximum`` version."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if "minimum" in versions:
            context.minimum_version = versions["minimum"]
        if "maximum" in versions:
            context.maximum_version = versions["maximum"]
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def port_of(broker: RunningBroker) -> int:
    """The port of its first listener with TLS."""
    return int(broker._find(r"listening amqps://\S+:(\d+)"))


def url_of(broker: RunningBroker) -> str:
    """That listener, by a name its certificate bears."""
    return f"amqps://localhost:{port_of(broker)}"


def connected(broker: RunningBroker, context: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    """A socket whose handshake is through."""
    plain = socket.create_connection(("127.0.0.1", port_of(broker)), timeout=10)
    try:
        return context.wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


class ByHand:
    """A client's TLS whose records the test carries itself, in pieces as small as it likes."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        # How what is sealed goes out.
        self.carry: Callable[[bytes], None] = self.socket.sendall

    def shake(self) -> None:
        """Go through the handshake."""
        while True:
            try:
                self.tls.do_handshake()
                return self.flush()
            except ssl.SSLWantReadError:
                self.flush()
                self._fetch()

    def flush(self) -> None:
        """Send what is sealed."""
        if self.outgoing.pending:
            self.carry(self.outgoing.read())

    def _fetch(self) -> None:
        data = self.socket.recv(65_536)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    # --- what frames.Stream asks for

    def sendall(self, data: bytes, /) -> None:
        self.tls.write(data)
        self.flush()

    def recv(self, size: int, /) -> bytes:
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLWantReadError:
                self._fetch()
            except ssl.SSLEOFError:
                return b""

    def settimeout(self, seconds: float | None, /) -> None:
        self.socket.settimeout(seconds)

    def shutdown(self, how: int, /) -> None:
        self.socket.shutdown(how)

    def close(self) -> None:
        self.socket.close()

    # --- what no client of Python's could say

    def update_keys(self) -> None:
        """Seal a KeyUpdate that asks for one in return (RFC 8446 §4.6.3)."""
        self._call("SSL_key_update", 1)

    def renegotiate(self) -> None:
        """Seal a ClientHello behind the handshake (RFC 5246 §7.4.1.2)."""
        self._call("SSL_renegotiate")

    def _call(self, name: str, *arguments: int) -> None:
        function = getattr(ctypes.CDLL(_ssl.__file__), name)
        function.argtypes = [ctypes.c_void_p, *(ctypes.c_int for _ in arguments)]
        # PySSLSocket: the head of an object, its socket, then OpenSSL's SSL.
        inner = self.tls._sslobj  # type: ignore[attr-defined]
        at = id(inner) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
        handle = ctypes.cast(at, ctypes.POINTER(ctypes.c_void_p))[0]
        assert function(handle, *arguments) == 1
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
