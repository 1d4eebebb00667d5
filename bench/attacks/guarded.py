"""Attacks on a broker with users and TLS: guessing, handshakes, and records that carry nothing."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Mapping

from bench.attacks.catalogue import Attack, again
from tests.wire.frames import OPEN, SASL_HEADER, SASL_INIT, RawPeer, Symbol, performative
from tests.wire.tlsworld import ByHand


def _guess(peer: RawPeer, until_s: float) -> None:
    """A password a connection."""
    said = f"\0alice\0{time.monotonic_ns()}".encode()
    peer.send(SASL_HEADER + performative(SASL_INIT, Symbol("PLAIN"), said, kind=1))
    peer.await_end(5)


def _trusting() -> ssl.SSLContext:
    """It asks nobody who they are."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def shaken(attack: Callable[[ByHand, float], None]) -> Attack:
    """The attack on one connection with TLS after the other."""

    def run(port: int, until_s: float) -> None:
        context = _trusting()
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                peer = ByHand(port, context)
                try:
                    attack(peer, until_s)
                finally:
                    peer.close()

    return run


def _greet(peer: ByHand, until_s: float) -> None:
    """The first flight, and its answer; then nothing more."""
    with contextlib.suppress(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    peer.flush()
    peer.socket.recv(65_536)


def _shake(peer: ByHand, until_s: float) -> None:
    peer.shake()


def _update(peer: ByHand, until_s: float) -> None:
    """Keys of TLS 1.3 asked for again and again (RFC 8446 §4.6.3)."""
    peer.shake()
    peer.sendall(SASL_HEADER + performative(OPEN, "x"))
    while time.monotonic() < until_s:
        for _ in range(200):
            peer.update_keys()
        peer.flush()


def _silent(port: int, until_s: float) -> None:
    """Hundreds of connections that begin TLS a byte at a time."""
    clients = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(300)]
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
    try:
        for at in range(len(hello)):
            if time.monotonic() > until_s:
                break
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(hello[at : at + 1])
            time.sleep(0.1)
    finally:
        for client in clients:
            client.close()


GUARDED_ATTACKS: Mapping[str, Attack] = {
    "passwords guessed over SASL": again(_guess),
    "TLS handshakes begun": shaken(_greet),
    "TLS handshakes and nothing else": shaken(_shake),
    "TLS keys updated for ever": shaken(_update),
    "slow TLS": _silent,
}
