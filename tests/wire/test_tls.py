"""AMQP over TLS on real sockets: who is let in by which version and certificate, and what no client may do to
others, however it uses TLS.
"""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from proton import SSL, Message, SSLDomain
from proton.utils import BlockingConnection

from broker.client.errors import ClientError, RefusedError
from broker.client.link import Connection
from broker.client.tls import Credentials
from broker.codec import sections
from broker.security.devcerts import authority
from tests.needs import program
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.frames import AMQP_HEADER, SASL_HEADER, SASL_MECHANISMS, RawPeer, transfer
from tests.wire.seeing import good_neighbours, memory_kb, number_of
from tests.wire.tlsworld import ByHand, Pki, connected, port_of, url_of

pytestmark = pytest.mark.wire

TLS = ("--listen", "amqps://127.0.0.1:0")
OLDEST, OLD, NEW = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """An authority, and certificates for the broker."""
    pki = Pki.at(tmp_path_factory.mktemp("tls") / "certs")
    pki.server("other", ("other.example.org", "*.wild.example.org"))
    return pki


@pytest.fixture(scope="module")
def secure(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all that change nothing of it: it asks for certificates, and knows another name."""
    other = f"certificate: {pki.folder}/other.pem, key: {pki.folder}/other-key.pem"
    # All clients are of one host, whose lines would be too many for tests that wait for one of them.
    config = "log_lines_per_peer: 0\n" + pki.section(
        client_ca=f"{pki.folder}/ca.pem",
        server_names=f"[{{names: [other.example.org, '*.wild.example.org'], {other}}}]",
    )
    broker = RunningBroker(tmp_path_factory.mktemp("secure"), config, "", TLS)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def credentials(pki: Pki, certificate: Path | None = None) -> Credentials:
    return Credentials(pki.ca, certificate, None)


def mechanisms(stream: ssl.SSLSocket | ByHand) -> list[str]:
    """What a client is offered."""
    with RawPeer(0, stream) as peer:
        peer.send(SASL_HEADER)
        assert peer.read_bytes(8) == SASL_HEADER
        found = peer.expect(SASL_MECHANISMS).field(0)
    return [str(found)] if isinstance(found, str) else [str(each) for each in found]  # type: ignore[attr-defined]


# --- versions and certificates


@pytest.mark.parametrize("version", [OLD, NEW])
def test_tls_1_2_and_1_3_carry_messages_and_the_log_says_which(
    secure: RunningBroker, pki: Pki, version: ssl.TLSVersion
) -> None:
    context = pki.context(minimum=version, maximum=version)
    with RawPeer(0, connected(secure, context)) as peer:
        peer.open(container=f"v{version.name}").begin().attach_sender("versions")
        peer.await_credit()
        peer.send(transfer(0, settled=True))
        wait_until(lambda: number_of(secure, "versions", "depth_msgs") >= 1, 10, "the message")
    secure.wait_for_log(f"container 'v{version.name}'")
    line = next(line for line in secure.lines if f"container 'v{version.name}'" in line)
    assert {OLD: "TLSv1.2 ECDHE-", NEW: "TLSv1.3 TLS_"}[version] in line


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_1_1_is_refused(secure: RunningBroker, pki: Pki) -> None:
    context = pki.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = OLDEST
    with pytest.raises(ssl.SSLError):
        connected(secure, context)
    secure.wait_for_log("TLS handshake failed: unsupported protocol")


def test_weak_ciphers_are_refused(secure: RunningBroker, pki: Pki) -> None:
    context = pki.context(maximum=OLD)
    context.set_ciphers("AES128-SHA:ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA")
    with pytest.raises(ssl.SSLError):
        connected(secure, context)
    secure.wait_for_log("TLS handshake failed: no shared cipher")


def test_a_certificate_names_its_user(secure: RunningBroker, pki: Pki) -> None:
    with Connection(url_of(secure), credentials=credentials(pki, pki.client("alice"))) as connection:
        connection.sender("named").send(sections.text_body("hi"), 20)
        secure.wait_for_log("user alice by EXTERNAL, TLSv1.3 ")


def test_a_connection_ends_with_its_certificate(secure: RunningBroker, pki: Pki) -> None:
    passing = credentials(pki, pki.client("brief", lasts=timedelta(seconds=6)))
    connection = Connection(url_of(secure), credentials=passing)
    secure.wait_for_log("user brief by EXTERNAL")
    with pytest.raises(RefusedError, match="the certificate has expired"):
        connection.wait(lambda: False, 30, "the end")
    connection.close()


def test_nobody_is_asked_for_external_without_a_certificate(secure: RunningBroker, pki: Pki) -> None:
    assert "EXTERNAL" not in mechanisms(connected(secure, pki.context()))
    assert "EXTERNAL" in mechanisms(connected(secure, pki.context(pki.client("bob"))))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_expired_and_foreign_certificates_are_refused(
    secure: RunningBroker, pki: Pki, version: ssl.TLSVersion
) -> None:
    expired = pki.client("late", expired=True)
    foreign = pki.client("foreign", by=authority("somebody else's"))
    for certificate, reason in (
        (expired, "certificate has expired"),
        (foreign, "unable to get local"),
    ):
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            mechanisms(connected(secure, pki.context(certificate, minimum=version, maximum=version)))
        secure.wait_for_log(f"the certificate was not accepted: {reason}")


def test_the_client_is_told_that_its_certificate_was_refused(secure: RunningBroker, pki: Pki) -> None:
    with pytest.raises(ClientError, match=r"TLS: .*alert certificate expired"):
        Connection(url_of(secure), credentials=credentials(pki, pki.client("old", expired=True)))


def test_a_certificate_without_a_user_opens_no_door(pki: Pki, start_broker: StartBroker) -> None:
    """A rule that finds nothing: EXTERNAL isn't offered, and a certificate alone lets nobody in."""
    config = pki.section(
        client_ca=f"{pki.folder}/ca.pem", client_certificates="required", user_from="SAN email"
    )
    broker = start_broker(config + "security: {allow_anonymous: false}\n", args=TLS)
    with RawPeer(0, connected(broker, pki.context(pki.client("carol")))) as peer:
        peer.send(SASL_HEADER)
        assert peer.read_bytes(8) == SASL_HEADER
        peer.await_end()
    broker.wait_for_log("no mechanism is configured for it")
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        mechanisms(connected(broker, pki.context()))
    broker.wait_for_log("peer did not return a certificate")


def test_each_name_has_its_certificate(secure: RunningBroker, pki: Pki) -> None:
    shown = {}
    for name in ("localhost", "other.example.org", "a.wild.example.org"):
        with connected(secure, pki.context(), name) as stream:
            certificate: Any = stream.getpeercert()
            shown[name] = dict(certificate["subject"][0])["commonName"]
    assert shown == {
        "localhost": "localhost",
        "other.example.org": "other.example.org",
        "a.wild.example.org": "other.example.org",
    }
    for stranger in ("a.b.wild.example.org", "unknown.example.org"):
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            connected(secure, pki.context(), stranger)


def test_another_name_verifies_clients_too(secure: RunningBroker, pki: Pki) -> None:
    context = pki.context(pki.client("dave"))
    assert "EXTERNAL" in mechanisms(connected(secure, context, "other.example.org"))


def test_certificates_are_read_again_and_nobody_is_cut_off(tmp_path: Path, start_broker: StartBroker) -> None:
    pki = Pki.at(tmp_path / "reloaded")
    broker = start_broker(pki.section(), args=TLS)
    first = pki.by.certificate
    with Connection(url_of(broker), credentials=credentials(pki)) as old:
        sender = old.sender("reloaded")
        sender.send(sections.text_body("before"), 20)
        made = pki.server("server")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("settings and policies reloaded")
        with connected(broker, pki.context()) as stream:
            shown = stream.getpeercert()
            assert shown is not None
            assert int(str(shown["serialNumber"]), 16) == made.certificate.serial_number
        sender.send(sections.text_body("after"), 20)
        sender.flush(20)
        # A key that isn't the certificate's: what there was goes on.
        other = pki.server("stranger")
        (pki.folder / "server-key.pem").write_bytes(other.key_pem())
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("reload refused, the old settings stay")
        assert "the key is not that of the certificate" in broker.log
        with connected(broker, pki.context()) as stream:
            shown = stream.getpeercert()
            assert shown is not None
            assert int(str(shown["serialNumber"]), 16) == made.certificate.serial_number
        sender.send(sections.text_body("still"), 20)
        sender.flush(20)
    assert number_of(broker, "reloaded", "depth_msgs") == 3
    assert first == pki.by.certificate


# --- what nobody may do to others


def test_a_flood_of_key_updates_ends_the_connection(secure: RunningBroker, pki: Pki) -> None:
    with good_neighbours(secure):
        peer = ByHand(port_of(secure), pki.context(minimum=NEW))
        peer.shake()
        raw = RawPeer(0, peer).open(container="floods")
        with suppress(OSError):  # it may have hung up
            for _ in range(200):
                for _ in range(100):
                    peer.update_keys()
                peer.flush()
        secure.wait_for_log("too many TLS records that carry nothing")
        raw.await_end()
        raw.close()


def test_keys_may_be_updated_now_and_then(secure: RunningBroker, pki: Pki) -> None:
    peer = ByHand(port_of(secure), pki.context(minimum=NEW))
    peer.shake()
    with RawPeer(0, peer) as raw:
        raw.open().begin().attach_sender("updated")
        raw.await_credit()
        for number in range(100):
            peer.update_keys()
            raw.send(transfer(number, settled=True))
        wait_until(lambda: number_of(secure, "updated", "depth_msgs") == 100, 10, "all messages")


def test_a_renegotiation_is_refused(secure: RunningBroker, pki: Pki) -> None:
    with good_neighbours(secure):
        peer = ByHand(port_of(secure), pki.context(maximum=OLD))
        peer.shake()
        raw = RawPeer(0, peer).open()
        peer.renegotiate()
        peer.flush()
        with pytest.raises(ssl.SSLError, match=r"(?i)no.renegotiation"):
            peer.recv(100)
        raw.close()


def test_a_handshake_has_a_time(pki: Pki, start_broker: StartBroker) -> None:
    broker = start_broker(pki.section() + "limits: {handshake_timeout: 2s}\n", args=TLS)
    silent = socket.create_connection(("127.0.0.1", port_of(broker)), timeout=10)
    slow = ByHand(port_of(broker), pki.context())
    with pytest.raises(ssl.SSLWantReadError):
        slow.tls.do_handshake()
    slow.socket.sendall(slow.outgoing.read()[:60])
    with good_neighbours(broker):
        assert silent.recv(100) == slow.socket.recv(100) == b""
    broker.wait_for_log("no TLS handshake within the time for it")
    silent.close()
    slow.close()


def test_garbage_instead_of_a_handshake(secure: RunningBroker) -> None:
    with good_neighbours(secure):
        for junk in (b"\x00" * 500, b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000, b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port_of(secure)), timeout=10) as sock:
                try:
                    sock.sendall(junk)
                    while sock.recv(4096):
                        pass
                except ConnectionError:
                    pass
    secure.wait_for_log("TLS handshake failed: http request")


def test_amqp_without_tls_is_told_apart(secure: RunningBroker) -> None:
    with socket.create_connection(("127.0.0.1", port_of(secure)), timeout=10) as sock:
        sock.sendall(AMQP_HEADER)
        assert sock.recv(100) == b""
    secure.wait_for_log("the client speaks AMQP without TLS, and this port is for amqps://")


def test_tls_on_a_port_without_it_is_told_apart(secure: RunningBroker, pki: Pki) -> None:
    plain = socket.create_connection(("127.0.0.1", secure.port), timeout=10)
    with pytest.raises(ssl.SSLError):
        pki.context().wrap_socket(plain, server_hostname="localhost")
    secure.wait_for_log("the client speaks TLS, and this port is for amqp://")
    plain.close()


# --- bytes, in all sizes


def test_bytes_that_come_one_by_one(secure: RunningBroker, pki: Pki) -> None:
    """The handshake and every record in segments of one byte."""
    peer = ByHand(port_of(secure), pki.context())

    def crumbs(data: bytes) -> None:
        for at in range(len(data)):
            peer.socket.sendall(data[at : at + 1])

    peer.carry = crumbs
    peer.shake()
    with RawPeer(0, peer) as raw:
        raw.open().begin().attach_sender("crumbs")
        raw.await_credit()
        raw.send(transfer(0, settled=True))
        wait_until(lambda: number_of(secure, "crumbs", "depth_msgs") == 1, 10, "the message")


def test_records_of_one_byte(secure: RunningBroker, pki: Pki) -> None:
    """Each byte of AMQP in a record of its own: slow, and no offence."""
    peer = ByHand(port_of(secure), pki.context())
    peer.shake()
    with RawPeer(0, peer) as raw:
        raw.open().begin().attach_sender("dust")
        raw.await_credit()
        for number in range(50):
            for byte in transfer(number, settled=True):
                peer.tls.write(bytes((byte,)))
            peer.flush()
        wait_until(lambda: number_of(secure, "dust", "depth_msgs") == 50, 10, "all messages")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_large_messages_come_back_as_they_went(
    secure: RunningBroker, pki: Pki, version: ssl.TLSVersion
) -> None:
    bodies = [sections.binary_body(bytes((number,)) * size) for number, size in enumerate((20_000, 3 << 20))]
    name = f"large{version.name}"
    with Connection(url_of(secure), credentials=credentials(pki)) as connection:
        sender, receiver = connection.sender(name), connection.receiver(name)
        for body in bodies * 3:
            sender.send(body, 20)
        sender.flush(20)
        got: list[bytes] = []
        while len(got) < 6:
            got += receiver.take(6, 20)
    assert got == bodies * 3


def test_a_reader_that_stops_holds_nobody_up(secure: RunningBroker, pki: Pki) -> None:
    """A megabyte waits for it at most, sealed or not; when it reads again it gets everything."""
    count, body = 3000, b"x" * 10_000
    with Connection(secure.url) as connection:
        sender = connection.sender("stopped")
        for _ in range(count):
            sender.send(sections.binary_body(body), 20)
        sender.flush(20)
    stream = connected(secure, pki.context())
    with RawPeer(0, stream) as reader:
        reader.open().begin(window=1 << 20).attach_receiver("stopped", mode=1)
        before = memory_kb(secure)
        reader.give_credit(count)
        with good_neighbours(secure):
            pass
        assert memory_kb(secure) - before < 20_000
        payload = 0
        while payload < count * len(body):
            data = stream.recv(65_536)
            assert data
            payload += data.count(b"x")


def test_a_connection_that_breaks_off_is_let_go(secure: RunningBroker, pki: Pki) -> None:
    """No close_notify, no close frame: its messages go to the next, its socket is closed."""
    with Connection(url_of(secure), credentials=credentials(pki)) as connection:
        sender = connection.sender("broken")
        sender.send(sections.text_body("one"), 20)
        sender.flush(20)
    stream = connected(secure, pki.context())
    peer = RawPeer(0, stream).open(container="breaks off").begin()
    peer.attach_receiver("broken")
    peer.give_credit(1)
    peer.expect(0x14)
    stream.close()
    secure.wait_for_log("container 'breaks off', user anonymous: ")
    with Connection(url_of(secure), credentials=credentials(pki)) as connection:
        assert len(connection.receiver("broken").take(1, 20)) == 1


def test_a_tampered_record_ends_the_connection(secure: RunningBroker, pki: Pki) -> None:
    peer = ByHand(port_of(secure), pki.context())
    peer.shake()
    raw = RawPeer(0, peer).open(container="tampers")
    peer.tls.write(b"\x00\x00\x00\x08\x02\x00\x00\x00")
    data = bytearray(peer.outgoing.read())
    data[-1] ^= 1
    peer.socket.sendall(data)
    secure.wait_for_log("TLS: decryption failed or bad record mac")
    raw.close()


def test_both_sides_say_that_they_are_done(secure: RunningBroker, pki: Pki) -> None:
    """close_notify is answered with what is left to say and close_notify."""
    peer = ByHand(port_of(secure), pki.context())
    peer.shake()
    raw = RawPeer(0, peer).open(container="polite")
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    peer.flush()
    rest = b""
    while data := peer.socket.recv(4096):
        rest += data
    peer.incoming.write(rest)
    # Reads to the broker's close_notify: a cut-off end would be an error.
    # OpenSSL's word for the other's close_notify; without one it would be SSLEOFError.
    with pytest.raises(ssl.SSLZeroReturnError):
        b"".join(iter(lambda: peer.tls.read(4096), b""))
    raw.close()


# --- clients


@pytest.mark.skipif(not SSL.present(), reason="python-qpid-proton was built without OpenSSL's headers")
def test_python_qpid_proton_is_a_client(secure: RunningBroker, pki: Pki) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(pki.ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    both = pki.client("erin")
    domain.set_credentials(str(both), str(both), None)
    connection = BlockingConnection(url_of(secure), ssl_domain=domain, timeout=10)
    connection.create_sender("proton").send(Message(body="hello"))
    receiver = connection.create_receiver("proton")
    assert receiver.receive(timeout=10).body == "hello"
    receiver.accept()
    connection.close()
    secure.wait_for_log("user erin by EXTERNAL")


def test_the_client_refuses_a_broker_it_does_not_know(
    secure: RunningBroker, pki: Pki, tmp_path: Path
) -> None:
    url = url_of(secure)
    with pytest.raises(ClientError, match=r"not accepted: .*self-signed certificate"):
        Connection(url, credentials=Credentials())
    stranger = authority()
    stranger.write(tmp_path, "stranger")
    with pytest.raises(ClientError, match="certificate was not accepted"):
        Connection(url, credentials=Credentials(tmp_path / "stranger.pem"))
    there = socket.create_connection(("127.0.0.1", port_of(secure)), timeout=10)
    there.setblocking(False)
    with pytest.raises(ClientError, match=r"(?i)hostname mismatch"):
        Connection("amqps://mq.example.org", credentials=credentials(pki), socket=there)
    with pytest.raises(ClientError, match=r"nobody\.pem: no such file"):
        Connection(url, credentials=Credentials(tmp_path / "nobody.pem"))


def test_a_client_never_falls_back_to_plain_amqp(secure: RunningBroker, pki: Pki) -> None:
    """Where no TLS is spoken it gives up; not a byte of AMQP is sent."""
    said = b""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            nonlocal said
            sock, _ = listening.accept()
            with sock:
                sock.settimeout(10)
                sock.sendall(SASL_HEADER)
                while data := sock.recv(4096):
                    said += data

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ClientError, match=r"is TLS spoken there"):
            Connection(f"amqps://localhost:{listening.getsockname()[1]}", credentials=credentials(pki))
        thread.join(10)
    assert said
    assert b"AMQP" not in said
    with pytest.raises(ClientError, match=r"is TLS spoken there"):
        Connection(f"amqps://localhost:{secure.port}", credentials=credentials(pki))


def test_commands_and_the_load_generator_speak_tls(secure: RunningBroker, pki: Pki) -> None:
    both = pki.client("frank")
    asked = ("-b", url_of(secure), "--ca", str(pki.ca), "--cert", str(both))
    for words in (
        ("send", *asked, "--count", "10", "--body", "hi", "spoken"),
        ("receive", *asked, "--count", "10", "spoken"),
        ("bench", *asked, "--count", "2000", "--body", "1000", "measured"),
        ("stat", *asked, "-q"),
    ):
        done = run_sluice(*words)
        assert done.returncode == 0, done.stderr
    secure.wait_for_log("user frank by EXTERNAL")


def test_routes_speak_tls(secure: RunningBroker, pki: Pki, start_broker: StartBroker) -> None:
    both = pki.client("route")
    routes = f"""
routes:
  - {{name: out, url: "{url_of(secure)}", address: routed, ca: {pki.ca}, certificate: {both}}}
"""
    with Connection(secure.url) as connection:
        connection.sender("routed")
    here = start_broker(routes)
    with Connection(here.url) as connection:
        sender = connection.sender("routed")
        sender.send(sections.text_body("through TLS"), 20)
        sender.flush(20)
    wait_until(lambda: number_of(secure, "routed", "depth_msgs") == 1, 10, "the message to be routed")
    secure.wait_for_log("container 'sluice.route.out', user route by EXTERNAL, TLSv1.3")


def test_handshakes_are_counted(secure: RunningBroker, pki: Pki) -> None:
    with connected(secure, pki.context(minimum=OLD, maximum=OLD)):
        pass
    with socket.create_connection(("127.0.0.1", port_of(secure)), timeout=10) as sock:
        sock.sendall(AMQP_HEADER)
        sock.recv(100)
    url = f"http://127.0.0.1:{secure.http_port}/metrics"
    with urllib.request.urlopen(url, timeout=START_SECONDS) as answer:
        shown = answer.read().decode()
    assert 'sluice_tls_handshakes_total{version="TLSv1.2"}' in shown
    assert 'sluice_tls_handshake_failures_total{reason="no TLS"}' in shown
    assert "sluice_tls_certificate_expiry_seconds " in shown


def test_openssl_finds_nothing_to_complain_of(secure: RunningBroker, pki: Pki) -> None:
    words = ("-connect", f"127.0.0.1:{port_of(secure)}", "-CAfile", str(pki.ca), "-verify_return_error")
    command = [program("openssl"), "s_client", *words, "-verify_hostname", "localhost", "-brief"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert "Verification: OK" in done.stderr
