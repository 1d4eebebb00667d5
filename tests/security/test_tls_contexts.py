"""Contexts made of files: what is refused, with the file's name, and what an operator is warned of."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from broker.cli import main
from broker.config.tls import Identification, NamedIdentification, Tls
from broker.errors import OperatorError
from broker.security import certificate
from broker.security.devcerts import IssuedCertificate, authority, leaf, write_all
from broker.security.tls import Contexts, ServerTls, server_context, warnings


@pytest.fixture(scope="module")
def by() -> IssuedCertificate:
    return authority()


def files(folder: Path, made: IssuedCertificate, password: str = "") -> Tls:
    found, key = made.write(folder, "server", password)
    return Tls(certificate=found, key=key)


def test_a_context_speaks_nothing_old(tmp_path: Path, by: IssuedCertificate) -> None:
    context = server_context(files(tmp_path, leaf(by, "localhost", ["localhost"])))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.num_tickets == 0
    assert context.verify_mode == ssl.CERT_NONE
    old = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert old
    assert all(name.startswith("ECDHE") and ("GCM" in name or "CHACHA20" in name) for name in old)


def test_what_is_wrong_with_a_file_is_told_by_its_name(tmp_path: Path, by: IssuedCertificate) -> None:
    good = files(tmp_path, leaf(by, "localhost"))
    (tmp_path / "rubbish.pem").write_text("nothing\n")
    other = leaf(by, "other").write(tmp_path, "other")[1]
    wrong = {
        "nobody.pem: No such file": Tls(tmp_path / "nobody.pem", good.key),
        "other-key.pem: the key is not that of the certificate in": Tls(good.certificate, other),
        "rubbish.pem and .*: not a PEM certificate and its key": Tls(tmp_path / "rubbish.pem", good.key),
        "tls.client_ca is missing": Tls(good.certificate, good.key, client_certificates="required"),
        "rubbish.pem: no certificate or crl found": Tls(
            good.certificate, good.key, client_ca=tmp_path / "rubbish.pem", client_certificates="required"
        ),
        "tls.ciphers: no such cipher here: NOTHING": Tls(good.certificate, good.key, ciphers="NOTHING"),
    }
    for text, settings in wrong.items():
        with pytest.raises(OperatorError, match=text):
            server_context(settings)
    named = NamedIdentification(("a.example.org",), Identification(tmp_path / "none.pem", other))
    with pytest.raises(OperatorError, match=r"none\.pem: No such file"):
        Contexts.of(Tls(good.certificate, good.key, server_names=(named,)))


def test_a_key_with_a_password_never_asks_on_a_terminal(tmp_path: Path, by: IssuedCertificate) -> None:
    locked = files(tmp_path, leaf(by, "localhost"), "open sesame")
    secret = tmp_path / "secret"
    with pytest.raises(OperatorError, match=r"the key has a password, and tls\.key_password_file is not set"):
        server_context(locked)
    with_file = Tls(locked.certificate, locked.key, secret)
    with pytest.raises(OperatorError, match="secret: No such file"):
        server_context(with_file)
    secret.write_text("wrong\n")
    with pytest.raises(OperatorError, match="does not open the key"):
        server_context(with_file)
    secret.write_text("\n")
    with pytest.raises(OperatorError, match="no password in its first line"):
        server_context(with_file)
    secret.write_text("open sesame\nand a note\n")
    server_context(with_file)


def test_what_expires_is_weak_or_can_be_read_is_warned_of(tmp_path: Path, by: IssuedCertificate) -> None:
    # When this file was loaded may be long ago; a certificate begins an hour before it is made.
    now = datetime.now(UTC)
    assert warnings(files(tmp_path, leaf(by, "fine")), now) == []
    soon = files(tmp_path, leaf(by, "soon", lasts=timedelta(days=20)))
    (found,) = warnings(soon, now)
    assert "the certificate expires on" in found
    assert found.endswith(("in 19 days", "in 20 days"))
    (found,) = warnings(soon, now + timedelta(days=21))
    assert "the certificate expired on" in found
    (found,) = warnings(soon, now - timedelta(days=3))
    assert "begins on" in found
    assert soon.key is not None
    soon.key.chmod(0o644)
    assert any("others than its owner may read it (mode 0644)" in each for each in warnings(soon, now))
    short = files(tmp_path, leaf(by, "weak", key=rsa.generate_private_key(65537, 1024)))
    (found,) = warnings(short, now)
    assert found.endswith("RSA key of 1024 bits; 2048 are the least that holds")


def test_the_first_of_all_certificates_to_expire_counts(tmp_path: Path, by: IssuedCertificate) -> None:
    chain = files(tmp_path, leaf(by, "long", lasts=timedelta(days=3000)))
    assert chain.certificate is not None
    chain.certificate.write_bytes(chain.certificate.read_bytes() + by.pem())
    contexts = Contexts.of(chain)
    assert contexts.expires == by.certificate.not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    ("key", "kind", "bits"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "EC", 256),
        (ec.generate_private_key(ec.SECP521R1()), "EC", 521),
        (rsa.generate_private_key(65537, 2048), "RSA", 2048),
        (ed25519.Ed25519PrivateKey.generate(), "Ed25519", 0),
    ],
)
def test_a_certificate_is_read_as_the_library_reads_it(
    by: IssuedCertificate, key: object, kind: str, bits: int
) -> None:
    made = leaf(by, "read", key=key, lasts=timedelta(days=20_000))
    found = certificate.parse(made.certificate.public_bytes(Encoding.DER))
    assert (found.kind, found.bits, found.weak_signature) == (kind, bits, "")
    assert found.expires == made.certificate.not_valid_after_utc
    assert found.begins == made.certificate.not_valid_before_utc
    assert found.weakness() == ""


def test_bytes_that_are_no_certificate_are_refused(by: IssuedCertificate, tmp_path: Path) -> None:
    der = by.certificate.public_bytes(Encoding.DER)
    for cut in (0, 1, 20, 100, len(der) // 2):
        with pytest.raises((ValueError, IndexError)):
            certificate.parse(der[:cut])
    path = tmp_path / "cut.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
    with pytest.raises(OperatorError, match="a certificate that can't be read"):
        certificate.read(path)


def test_a_user_is_nobody_once_the_certificate_is_over(tmp_path: Path, by: IssuedCertificate) -> None:
    tls = ServerTls(files(tmp_path, leaf(by, "localhost")))
    shown = {"subject": ((("commonName", "alice"),),), "notAfter": "Jan  1 00:00:00 2090 GMT"}
    assert tls.user(shown) == "alice"
    assert tls.user(shown | {"notAfter": "Jan  1 00:00:00 2020 GMT"}) == ""
    assert tls.user(None) == tls.user({}) == ""


def test_development_certificates_keep_their_authority(tmp_path: Path) -> None:
    written = write_all(tmp_path / "new", ["mq.example.org", "10.0.0.1"], "alice")
    assert [path.name for path in written] == [
        *("ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "client.pem", "client-key.pem")
    ]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in written if "key" in path.name)
    again = write_all(tmp_path / "new", ["mq.example.org"], "bob")
    assert "ca.pem" not in [path.name for path in again]
    loaded = [x509.load_pem_x509_certificate(path.read_bytes()) for path in (written[0], written[4])]
    loaded[1].verify_directly_issued_by(loaded[0])
    (tmp_path / "new" / "ca-key.pem").write_text("rubbish")
    with pytest.raises(OperatorError, match="no authority to sign with"):
        write_all(tmp_path / "new", ["localhost"], "eve")


def test_serve_check_warns_and_refuses(
    tmp_path: Path, by: IssuedCertificate, capsys: pytest.CaptureFixture[str]
) -> None:
    soon = files(tmp_path, leaf(by, "soon", lasts=timedelta(days=3)))
    assert soon.key is not None
    soon.key.chmod(0o640)
    config = tmp_path / "broker.yaml"
    rows = f"tls: {{certificate: {soon.certificate}, key: {soon.key}}}\n"
    config.write_text("listeners: [amqps://127.0.0.1:0]\n" + rows)
    words = ["serve", "--check", "--config", str(config), "--data", str(tmp_path)]
    assert main.main(words) == 0
    told = capsys.readouterr()
    assert told.out == "settings and policies are in order\n"
    assert "warning: " in told.err
    assert "the certificate expires on" in told.err
    assert "others than its owner may read it (mode 0640)" in told.err
    leaf(by, "other").write(tmp_path, "server")[0].write_bytes(leaf(by, "third").pem())
    assert main.main(words) == 1
    assert "the key is not that of the certificate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "starts"),
    [
        ("client_certificates: required", True),
        ("client_certificates: optional", True),
        ("client_certificates: none", False),
        ("client_certificates: required}, security: {mechanisms: [PLAIN]", False),
    ],
)
def test_certificates_are_a_way_to_say_who_one_is(
    more: str, starts: bool, tmp_path: Path, by: IssuedCertificate, capsys: pytest.CaptureFixture[str]
) -> None:
    """A port that others reach needs no users where a certificate says who somebody is; a plain one does."""
    own = files(tmp_path, leaf(by, "server"))
    by.write(tmp_path, "ca")
    config = tmp_path / "broker.yaml"
    tls = f"certificate: {own.certificate}, key: {own.key}, client_ca: {tmp_path}/ca.pem, {more}"
    words = ["serve", "--check", "--config", str(config), "--data", str(tmp_path)]
    for listener, allowed in (("amqps://0.0.0.0:0", starts), ("amqp://0.0.0.0:0", False)):
        config.write_text(f"{{listeners: [{listener}], tls: {{{tls}}}}}\n")
        assert (main.main(words) == 0) == allowed
        told = capsys.readouterr().err
        assert allowed or "nobody has to say there who they are" in told
