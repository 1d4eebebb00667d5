"""Who comes in over the wire: each mechanism, every way to get it wrong, and what a stranger can't do."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from broker.client.errors import ConnectionLostError, RefusedError
from broker.client.link import Connection
from broker.codec import sasl
from broker.codec.sasl import AMQP_HEADER, AUTH, CHALLENGE, OK, OUTCOME, SASL_HEADER, SYS_TEMP
from broker.security.users import FEWEST, User
from broker.security.usersfile import changing
from tests.security.exchanges import OPEN, PASSWORD, ScramSide, a_user, frames, outcome_of, plain
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice
from tests.wire.frames import performative
from tests.wire.web import dial

pytestmark = pytest.mark.wire

CLI = (sys.executable, "-m", "broker.cli.main")
EVERYTHING = (
    "mechanisms: [EXTERNAL, SCRAM-SHA-512, SCRAM-SHA-256, SCRAM-SHA-1, PLAIN, ANONYMOUS], "
    "plain_without_tls: true"
)


def write_users(path: Path) -> Path:
    with changing(path) as file:
        file.iterations = FEWEST
        file.users["alice"] = a_user("alice", groups=frozenset({"writers"}))
        file.users["proxy"] = a_user("proxy", acts_as=frozenset({"alice"}))
    return path


def settings_of(users: Path) -> str:
    return f"log_lines_per_peer: 0\nsecurity: {{users: {users}, free_attempts: 1000, {EVERYTHING}}}\n"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_users(tmp_path / "users")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with users, on loopback, for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("guarded")
    broker = RunningBroker(folder / "broker", settings_of(write_users(folder / "users")), "", ())
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


class Stranger:
    """A socket that says SASL by hand."""

    def __init__(self, broker: RunningBroker, header: bytes = SASL_HEADER) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port), 10)
        self.sock.sendall(header)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def frame(self) -> bytes:
        """The next frame, or a protocol header; empty at the end."""
        try:
            head = self._exactly(8)
            if head[:4] == b"AMQP" or not head:
                return head
            return head + self._exactly(int.from_bytes(head[:4], "big") - 8)
        except ConnectionResetError:
            return b""

    def outcome(self) -> int:
        """The outcome's code, whatever stands before it."""
        while (said := self.frame()) and (said[:4] == b"AMQP" or frames(said)[0][0] != OUTCOME):
            pass
        return outcome_of(said)

    def rest(self) -> bytes:
        """Everything up to the end."""
        return b"".join(iter(self.frame, b""))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                return b""
            data += piece
        return data


@contextmanager
def stranger(broker: RunningBroker, header: bytes = SASL_HEADER) -> Iterator[Stranger]:
    found = Stranger(broker, header)
    try:
        yield found
    finally:
        found.sock.close()


def attempt(broker: RunningBroker, mechanism: str, response: bytes | None) -> int:
    """The code of the outcome of a mechanism of one message."""
    with stranger(broker) as one:
        one.send(sasl.init(mechanism, response))
        return one.outcome()


def scram(broker: RunningBroker, user: str, password: str, mechanism: str) -> tuple[int, int]:
    """The outcome's code, and the size of the challenge."""
    client = ScramSide(user, password, mechanism)
    with stranger(broker) as one:
        one.send(sasl.init(mechanism, client.first()))
        while (said := one.frame())[:4] == b"AMQP" or frames(said)[0][0] != CHALLENGE:
            pass
        challenge = frames(said)[0][1][0]
        assert challenge is not None
        one.send(sasl.response(client.final(challenge)))
        last = one.frame()
        code = outcome_of(last)
        if code == OK:
            final = frames(last)[0][1][1]
            assert final is not None
            client.check(final)
        return code, len(challenge)


def url(broker: RunningBroker, user: str = "alice", password: str = "correct%20horse") -> str:
    return broker.url.replace("://", f"://{user}:{password}@")


def stat_connections(broker: RunningBroker) -> str:
    done = run_sluice("stat", "-c", "-b", url(broker))
    done.check_returncode()
    return done.stdout


# --- mechanisms


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(guarded: RunningBroker, mechanism: str) -> None:
    code, size = scram(guarded, "alice", PASSWORD, mechanism)
    assert code == OK
    assert scram(guarded, "alice", "wrong", mechanism) == (AUTH, size)
    assert scram(guarded, "nobody", PASSWORD, mechanism) == (AUTH, size)


def test_plain(guarded: RunningBroker) -> None:
    assert attempt(guarded, "PLAIN", plain("alice")) == OK
    assert attempt(guarded, "PLAIN", plain("alice", "wrong")) == AUTH
    assert attempt(guarded, "PLAIN", plain("nobody")) == AUTH


def test_who_may_act_as_another_is_that_one_and_who_may_not_is_refused(guarded: RunningBroker) -> None:
    assert attempt(guarded, "PLAIN", plain("alice", other="alice")) == OK
    assert attempt(guarded, "PLAIN", plain("alice", other="proxy")) == AUTH
    assert attempt(guarded, "PLAIN", plain("proxy", other="alice")) == OK
    guarded.wait_for_log("'alice' may not act as 'proxy'")


def test_what_is_not_there_is_not_offered(guarded: RunningBroker) -> None:
    """No certificate, no issuer, and users: nobody is anonymous then."""
    with stranger(guarded) as one:
        assert one.frame() == SASL_HEADER
        offered = one.frame()
    for name in (b"SCRAM-SHA-512", b"SCRAM-SHA-256", b"SCRAM-SHA-1", b"PLAIN"):
        assert name in offered
    for missing in ("EXTERNAL", "ANONYMOUS", "OAUTHBEARER", "XOAUTH2"):
        assert missing.encode() not in offered
        assert attempt(guarded, missing, b"") == AUTH


def test_plain_is_not_taken_where_others_could_read_it(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(f"security: {{users: {users}}}\n")
    with stranger(broker) as one:
        one.frame()
        assert b"PLAIN" not in one.frame()
    assert attempt(broker, "PLAIN", plain("alice")) == AUTH
    assert attempt(broker, "SCRAM-SHA-1", b"n,,n=alice,r=abc") == AUTH
    assert scram(broker, "alice", PASSWORD, "SCRAM-SHA-256")[0] == OK


def test_our_client_and_protons(guarded: RunningBroker) -> None:
    with Connection(url(guarded)) as connection:
        sender = connection.sender("q")
        sender.send(bytes(Message(body="hello").encode()))
        sender.flush()
        assert re.search(r"alice +SCRAM-SHA-256", stat_connections(guarded))
    theirs = BlockingConnection(url(guarded), timeout=10, allowed_mechs="PLAIN")
    assert theirs.create_receiver("q").receive(timeout=10).body == "hello"
    assert re.search(r"alice +PLAIN", stat_connections(guarded))
    theirs.close()
    guarded.wait_for_log("user alice by SCRAM-SHA-256")
    guarded.wait_for_log("user alice by PLAIN")


def test_our_client_and_protons_are_refused(guarded: RunningBroker) -> None:
    for user, password in (("alice", "wrong"), ("nobody", "correct%20horse")):
        with pytest.raises(RefusedError, match="unauthorized-access"):
            Connection(url(guarded, user, password))
        with pytest.raises(ConnectionException, match="Authentication failed"):
            BlockingConnection(url(guarded, user, password), timeout=10, allowed_mechs="PLAIN")
    with pytest.raises(RefusedError, match="wants to know who you are") as refused:
        Connection(guarded.url)
    assert PASSWORD not in str(refused.value)


def test_a_broker_that_does_not_prove_itself_is_refused() -> None:
    """It lets us in without knowing our password; with SCRAM that is no broker of ours."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def impostor() -> None:
            sock, _ = server.accept()
            with sock:
                sock.sendall(SASL_HEADER + sasl.mechanisms(("SCRAM-SHA-256",)))
                sock.recv(4096)
                sock.sendall(sasl.outcome(OK))
                while sock.recv(4096):
                    pass

        said = pool.submit(impostor)
        with pytest.raises((RefusedError, ConnectionLostError), match="unauthorized-access"):
            Connection(f"amqp://alice:x@127.0.0.1:{server.getsockname()[1]}", timeout_s=10)
        said.result(10)


# --- ways round


def test_without_sasl_nobody_comes_in(guarded: RunningBroker) -> None:
    with stranger(guarded, AMQP_HEADER + OPEN) as one:
        assert one.rest() == SASL_HEADER


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("AMQP's header instead of an init", AMQP_HEADER + OPEN),
        ("an open instead of an init", OPEN),
        ("AMQP behind an unfinished SCRAM", b"init" + AMQP_HEADER + OPEN),
        ("an open behind an unfinished SCRAM", b"init" + OPEN),
        ("an outcome of its own", b"init" + sasl.outcome(OK) + AMQP_HEADER + OPEN),
        ("AMQP behind a wrong password", sasl.init("PLAIN", plain("alice", "x")) + AMQP_HEADER + OPEN),
        ("AMQP behind an unknown mechanism", sasl.init("CRAM-MD5", b"") + AMQP_HEADER + OPEN),
        ("a frame larger than 512 bytes", sasl.init("PLAIN", plain("alice", "x" * 600))),
        ("a frame of 4 GB", b"\xff\xff\xff\xff\x02\x01\x00\x00"),
        ("frame after frame", sasl.init("PLAIN", None) + sasl.response(b"") * 10),
        ("responses without an init", sasl.response(plain("alice")) * 3),
    ],
)
def test_nothing_of_amqp_begins_before_the_outcome(guarded: RunningBroker, what: str, said: bytes) -> None:
    init = sasl.init("SCRAM-SHA-256", ScramSide("alice").first())
    with stranger(guarded) as one:
        one.send(said.replace(b"init", init, 1) if said.startswith(b"init") else said)
        answer = one.rest()
    assert AMQP_HEADER not in answer, what
    assert b"\x00\x53\x10" not in answer, f"{what}: an open was answered"
    assert outcome_of(answer) == AUTH, what


@pytest.mark.parametrize("early", [False, True])
def test_sasl_behind_the_outcome_ends_the_connection(guarded: RunningBroker, early: bool) -> None:
    init = sasl.init("PLAIN", plain("alice"))
    again = sasl.response(b"x")
    with stranger(guarded) as one:
        one.send(init + again if early else init)
        if not early:
            assert one.outcome() == OK
            one.send(again)
        answer = one.rest()
    assert b"\x00\x53\x10" not in answer
    assert answer.endswith(AMQP_HEADER)
    with stranger(guarded) as one:
        one.send(init + AMQP_HEADER + OPEN)
        assert one.outcome() == OK
        one.send(again)
        assert b"framing-error" in one.rest()


def test_who_only_begins_is_cut_off_in_time(start_broker: StartBroker, users: Path) -> None:
    """It must have begun by then, however slowly this process is run; ten seconds are the default."""
    broker = start_broker(f"security: {{users: {users}}}\nlimits: {{handshake_timeout: 3s}}\n")
    with stranger(broker) as one:
        one.send(sasl.init("SCRAM-SHA-256", ScramSide("alice").first()))
        one.sock.settimeout(30)
        assert one.rest().startswith(SASL_HEADER)
    broker.wait_for_log("no AMQP connection within the time for it")


def test_slow_attempts_hold_nobody_up(start_broker: StartBroker, tmp_path: Path) -> None:
    """A password that costs half a second to check, from many at once: the loop goes on turning.

    Others' messages are all settled before the last guess is answered, many seconds later.
    """
    path = tmp_path / "slow"
    with changing(path) as file:
        file.users["alice"] = User("alice", a_user("alice").verifiers)
        file.iterations = 2_000_000
    text = path.read_text().replace(f"${FEWEST}:", "$2000000:")
    path.write_text(text)
    broker = start_broker(
        f"security: {{users: {path}, {EVERYTHING}, allow_anonymous: true, free_attempts: 1000}}\n"
    )
    guessing = [Stranger(broker) for _ in range(30)]
    for one in guessing:
        one.send(sasl.init("PLAIN", plain("alice", "wrong")))
    with Connection(broker.url) as connection:
        sender = connection.sender("q")
        for _ in range(20):
            sender.send(bytes(Message(body="x").encode()))
            sender.flush()
    assert read_metrics(broker).get('{mechanism="PLAIN",outcome="failure"}', 0) < len(guessing)
    for one in guessing:
        one.sock.close()


# --- guessing


def test_who_guesses_has_to_wait_and_others_do_not(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(
        f"security: {{users: {users}, {EVERYTHING}, free_attempts: 3, first_pause: 60 s}}\n"
    )
    codes = [attempt(broker, "PLAIN", plain(f"user{n}", "letmein")) for n in range(3)]
    assert codes == [AUTH] * 3
    # Not even the right password is looked at now, by whatever mechanism.
    assert attempt(broker, "PLAIN", plain("alice")) == SYS_TEMP
    assert attempt(broker, "SCRAM-SHA-256", ScramSide("alice").first()) == SYS_TEMP
    broker.wait_for_log("too many failed attempts")
    metrics = read_metrics(broker)
    assert metrics.get('{mechanism="PLAIN",outcome="success"}', 0) == 0
    assert metrics['{mechanism="PLAIN",outcome="failure"}'] == 4
    assert metrics['{mechanism="SCRAM-SHA-256",outcome="failure"}'] == 1


def test_a_pause_for_who_guessed_ends(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(f"security: {{users: {users}, {EVERYTHING}, free_attempts: 3, first_pause: 2 s}}\n")
    for n in range(3):
        assert attempt(broker, "PLAIN", plain(f"user{n}", "letmein")) == AUTH
    wait_until(lambda: attempt(broker, "PLAIN", plain("alice")) == OK, 30, "the pause to end")
    assert read_metrics(broker)['{mechanism="PLAIN",outcome="success"}'] == 1


def test_many_guesses_at_once_are_no_more_than_one_after_the_other(
    start_broker: StartBroker, users: Path
) -> None:
    """All connections opened before the first guess; what is worked on elsewhere isn't let in either."""
    broker = start_broker(
        f"security: {{users: {users}, {EVERYTHING}, free_attempts: 4, first_pause: 60 s}}\n"
    )
    crowd = [Stranger(broker) for _ in range(40)]
    for one in crowd:
        one.send(sasl.init("PLAIN", plain("alice", "wrong")))
    codes = [one.outcome() for one in crowd]
    for one in crowd:
        one.sock.close()
    assert codes.count(AUTH) == 4
    assert codes.count(SYS_TEMP) == 36


def test_a_fleet_that_logs_in_at_once_gets_in(guarded: RunningBroker) -> None:
    with ThreadPoolExecutor(20) as pool:
        codes = list(pool.map(lambda _: attempt(guarded, "PLAIN", plain("alice")), range(60)))
    assert codes == [OK] * 60


def test_unknown_users_take_as_long(start_broker: StartBroker, tmp_path: Path) -> None:
    """The same class of time: within half of each other, where a shortcut would be a hundredth.

    The shortest of each is compared: what else runs here can only make one longer.
    """
    path = tmp_path / "users"
    subprocess.run(
        [
            *CLI,
            "users",
            "add",
            "alice",
            "--file",
            str(path),
            "--password-file",
            "-",
            "--iterations",
            "200000",
        ],
        input=PASSWORD.encode(),
        check=True,
        timeout=60,
    )
    broker = start_broker(f"security: {{users: {path}, {EVERYTHING}, free_attempts: 1000}}\n")

    def took(user: str) -> float:
        began = time.monotonic()
        assert attempt(broker, "PLAIN", plain(user, "wrong")) == AUTH
        return time.monotonic() - began

    known, unknown = [], []
    for n in range(9):
        known.append(took("alice"))
        unknown.append(took(f"nobody{n}"))
    ratio = min(known) / min(unknown)
    assert 0.5 < ratio < 2


def read_metrics(broker: RunningBroker) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r"^sluice_authentications_total(\{[^}]*\}) (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_a_name_that_nobody_has_is_in_no_log(start_broker: StartBroker, users: Path) -> None:
    """It may be a password that was typed into the wrong field."""
    guarded = start_broker(settings_of(users))
    assert attempt(guarded, "PLAIN", plain("my-secret-word")) == AUTH
    assert attempt(guarded, "PLAIN", plain("alice", "wrong")) == AUTH
    guarded.wait_for_log("PLAIN for somebody unknown")
    guarded.wait_for_log("PLAIN for 'alice'")
    with stranger(guarded) as peer:
        peer.send(sasl.init("SCRAM-SHA-256", ScramSide("other-secret").first()))
        while b"s=" not in peer.frame():
            pass
        peer.send(sasl.response(b"c=biws,r=x,p=AAAA"))
        assert peer.outcome() == AUTH
    guarded.wait_for_log("SCRAM-SHA-256 for somebody unknown")
    assert "secret" not in guarded.log


# --- reloading


def test_users_come_and_go_without_a_restart(start_broker: StartBroker, users: Path) -> None:
    guarded = start_broker(settings_of(users))
    stays = Connection(url(guarded))
    goes = Connection(url(guarded, "proxy"))
    with changing(users) as file:
        del file.users["proxy"]
        file.users["bob"] = a_user("bob")
    assert attempt(guarded, "PLAIN", plain("bob")) == AUTH
    guarded.signal(signal.SIGHUP)
    guarded.wait_for_log("reloaded")
    assert attempt(guarded, "PLAIN", plain("bob")) == OK
    assert attempt(guarded, "PLAIN", plain("proxy")) == AUTH
    with pytest.raises(RefusedError, match="'proxy' is no user any more"):
        goes.wait(lambda: False, 10, "the end")
    sender = stays.sender("q")
    sender.send(bytes(Message(body="still here").encode()))
    sender.flush()
    stays.close()
    goes.close()


def test_who_was_on_the_way_in_when_the_user_went_does_not_arrive(
    start_broker: StartBroker, users: Path
) -> None:
    """The exchange began by earlier users; whoever is none by its end is let go behind the outcome."""
    guarded = start_broker(settings_of(users))
    side = ScramSide("alice")
    with stranger(guarded) as peer:
        mechanisms = peer.frame(), peer.frame()
        assert mechanisms[0] == SASL_HEADER
        peer.send(sasl.init(side.mechanism, side.first()))
        [(code, [challenge])] = frames(peer.frame())
        assert code == CHALLENGE
        assert challenge is not None
        with changing(users) as file:
            del file.users["alice"]
        guarded.signal(signal.SIGHUP)
        guarded.wait_for_log("reloaded")
        peer.send(sasl.response(side.final(challenge)) + AMQP_HEADER + OPEN)
        peer.outcome()
        assert peer.rest() == b"", "it is spoken to in AMQP"
    guarded.wait_for_log("refused: 'alice' is no user any more")
    assert "user alice by" not in guarded.log


def test_who_acts_as_another_goes_with_its_own_name(start_broker: StartBroker, users: Path) -> None:
    """Who proved to be the proxy is the proxy, whomever it acts as: deleted, or no longer trusted so far."""
    guarded = start_broker(settings_of(users))
    with stranger(guarded) as peer:
        peer.send(sasl.init("PLAIN", plain("proxy", other="alice")) + AMQP_HEADER + OPEN)
        assert peer.outcome() == OK
        guarded.wait_for_log("user alice by PLAIN")
        with changing(users) as file:
            file.users["proxy"] = a_user("proxy")
        guarded.signal(signal.SIGHUP)
        assert b"is no user any more" in peer.rest()


def test_who_never_said_who_it_is_goes_when_there_are_users(start_broker: StartBroker, users: Path) -> None:
    open_to_all = start_broker("log_lines_per_peer: 0\n")
    with stranger(open_to_all, AMQP_HEADER + OPEN) as plainly, Connection(open_to_all.url) as by_anonymous:
        open_to_all.wait_for_log("user anonymous by no SASL")
        by_anonymous.sender("q")
        open_to_all.config_file.write_text(settings_of(users))
        open_to_all.signal(signal.SIGHUP)
        assert b"let in no more by a connection without SASL" in plainly.rest()
        with pytest.raises(RefusedError, match="let in no more by ANONYMOUS"):
            by_anonymous.wait(lambda: False, 10, "the end")


def test_a_file_at_fault_changes_nothing(start_broker: StartBroker, users: Path) -> None:
    guarded = start_broker(settings_of(users))
    users.chmod(0o644)
    guarded.signal(signal.SIGHUP)
    guarded.wait_for_log("has mode 0644")
    guarded.wait_for_log("reload refused, the old settings stay")
    assert attempt(guarded, "PLAIN", plain("alice")) == OK


# --- secure by default


def serve(tmp_path: Path, config: str, *args: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "serve.yaml"
    file.write_text(config)
    return run_sluice("serve", "--config", str(file), "--data", str(tmp_path / "d"), *args)


@pytest.mark.parametrize("check", [("--check",), ()])
@pytest.mark.parametrize(
    ("flag", "where"),
    [("--listen", "amqp://0.0.0.0:0"), ("--listen", "amqp://[::]:0"), ("--http", "0.0.0.0:0")],
)
def test_strangers_are_let_in_only_if_somebody_says_so(
    tmp_path: Path, flag: str, where: str, check: tuple[str, ...]
) -> None:
    done = serve(tmp_path, "{}\n", flag, where, *check)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{flag}: ")
    assert "security.allow_anonymous: true" in done.stderr
    assert "security.users" in done.stderr
    assert serve(tmp_path, "security: {allow_anonymous: true}\n", flag, where, "--check").returncode == 0
    assert serve(tmp_path, "security: {allow_anonymous: false}\n", flag, where, "--check").returncode == 0


def test_check_refuses_two_listeners_at_one_place(tmp_path: Path) -> None:
    one, free = "amqp://127.0.0.1:45999", ("--http", "127.0.0.1:0")
    config = f"listeners: [{one}, '{one}?allow_plain=false']\n"
    done = serve(tmp_path, config, "--check", *free)
    where = f"{tmp_path / 'serve.yaml'}:1:1: listeners: "
    assert (done.returncode, done.stderr) == (
        1,
        f"{where}{one}: another listener has that port already\n",
    )
    done = serve(tmp_path, f"listeners: [{one}]\n", "--check", "--http", "127.0.0.1:45999")
    assert done.stderr == "--http: http: http://127.0.0.1:45999: another listener has that port already\n"
    anything = ("--listen", "amqp://127.0.0.1:0")
    assert serve(tmp_path, "{}\n", "--check", *anything, *anything, *free).returncode == 0


def test_check_says_what_is_wrong_with_users_and_keys(tmp_path: Path) -> None:
    missing = tmp_path / "users"
    done = serve(tmp_path, f"security: {{users: {missing}}}\n", "--check")
    assert (done.returncode, done.stderr) == (1, f"{missing}: cannot be read: No such file or directory\n")
    done = serve(tmp_path, "security: {oauth_issuer: x}\n", "--check")
    assert "tokens are of no use without oauth_audience and oauth_jwks" in done.stderr


def test_an_open_port_with_users_lets_no_stranger_in(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(
        f"security: {{users: {users}}}\n",
        args=("--listen", "amqp://127.0.0.1:0", "--listen", "amqp://0.0.0.0:0?allow_plain=true"),
    )
    found = re.search(r"listening amqp://0\.0\.0\.0:(\d+)", broker.log)
    assert found is not None
    broker.port = int(found[1])
    with stranger(broker, AMQP_HEADER + OPEN) as one:
        assert one.rest() == SASL_HEADER
    assert attempt(broker, "ANONYMOUS", b"") == AUTH
    assert scram(broker, "alice", PASSWORD, "SCRAM-SHA-512")[0] == OK


def over_websocket(broker: RunningBroker, said: bytes) -> bytes:
    """What the broker answers, up to its outcome or its end."""
    web = dial(broker)
    try:
        web.send(said)
        answer = b""
        while b"\x00\x53\x44" not in answer and not (answer == SASL_HEADER and AMQP_HEADER in said[:8]):
            piece = web.recv(timeout=10)
            assert isinstance(piece, bytes)
            answer += piece
        return answer
    finally:
        # A thread of the library's waits in it: closed only, it would be open until that thread is done.
        with suppress(OSError):
            web.socket.shutdown(socket.SHUT_RDWR)
        web.socket.close()


def test_websocket_obeys_the_same(guarded: RunningBroker) -> None:
    assert over_websocket(guarded, AMQP_HEADER + OPEN) == SASL_HEADER
    begun = SASL_HEADER + sasl.init("ANONYMOUS", b"")
    refused = over_websocket(guarded, begun)
    assert b"ANONYMOUS" not in refused
    assert outcome_of(refused) == AUTH
    accepted = over_websocket(guarded, SASL_HEADER + sasl.init("PLAIN", plain("alice")))
    assert outcome_of(accepted) == OK


# --- our own command line


def cli(broker: RunningBroker, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_sluice(*words, "-b", broker.url, env=environment)


def test_the_command_line_logs_in_and_shows_no_password(guarded: RunningBroker, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    login = {"SLUICE_USER": "alice", "SLUICE_PASSWORD_FILE": str(file)}
    assert cli(guarded, "send", "q", "--count", "3", **login).returncode == 0
    assert "hello" not in cli(guarded, "receive", "q", "--count", "3", **login).stderr
    assert cli(guarded, "stat", **login).returncode == 0
    done = cli(guarded, "bench", "b", "--seconds", "200ms", "--warmup", "0s", "--json", **login)
    assert done.returncode == 0, done.stderr
    for wrong in (
        cli(guarded, "stat"),
        cli(guarded, "stat", SLUICE_USER="alice", SLUICE_PASSWORD="hunter2"),
        cli(guarded, "bench", "b", SLUICE_USER="alice", SLUICE_PASSWORD="hunter2"),
        cli(guarded, "stat", SLUICE_USER="alice", SLUICE_PASSWORD_FILE=str(tmp_path / "none")),
    ):
        assert wrong.returncode == 1, wrong
        assert "hunter2" not in wrong.stdout + wrong.stderr
    assert PASSWORD not in guarded.log
    assert "hunter2" not in guarded.log


def test_config_logs_in_wherever_the_broker_is_named(guarded: RunningBroker) -> None:
    login = {"SLUICE_USER": "alice", "SLUICE_PASSWORD": PASSWORD}
    behind = cli(guarded, "config", "queues", **login)
    assert behind.returncode == 0, behind.stderr
    assert cli(guarded, "config", "queues").returncode == 1


def test_a_route_logs_in_to_a_broker_with_users(
    guarded: RunningBroker, start_broker: StartBroker, users: Path
) -> None:
    """And to its own, which has users too, without being one."""
    route = f"routes: [{{name: r, url: '{url(guarded)}', address: out}}]\n"
    other = start_broker(f"security: {{users: {users}, {EVERYTHING}}}\n{route}")
    with Connection(url(other)) as there, Connection(url(guarded)) as here:
        receiver = here.receiver("out")
        sender = there.sender("out")
        sender.send(bytes(Message(body="hello").encode()))
        sender.flush()
        assert len(receiver.take(1, 15)) == 1
    guarded.wait_for_log("user alice by SCRAM-SHA-256")
    other.wait_for_log("user $broker")
    assert PASSWORD not in other.log


# --- tokens


def test_a_connection_ends_with_its_token(start_broker: StartBroker, tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public]}))
    broker = start_broker(
        f"security: {{plain_without_tls: true, oauth_issuer: me, oauth_audience: [sluice],"
        f" oauth_jwks: {tmp_path / 'jwks.json'}}}\n"
    )

    def message(left_s: float, **more: object) -> bytes:
        # So long after its end a token is still taken.
        ends = int(time.time() + left_s) - 30
        claims = {"iss": "me", "aud": "sluice", "sub": "alice", "exp": ends, "pad": "x" * 600} | more
        return f"n,,\x01auth=Bearer {jwt.encode(claims, key, 'RS256')}\x01\x01".encode()

    assert attempt(broker, "OAUTHBEARER", message(-5)) == AUTH
    assert attempt(broker, "OAUTHBEARER", message(600, aud="another")) == AUTH
    with stranger(broker) as one:
        one.sock.settimeout(30)
        # Long enough for whoever is held up between here and there.
        one.send(sasl.init("OAUTHBEARER", message(10)) + AMQP_HEADER + performative(0x10, "raw"))
        assert one.outcome() == OK
        broker.wait_for_log("user alice by OAUTHBEARER")
        assert b"the token has expired" in one.rest()
    broker.wait_for_log("refused: OAUTHBEARER: ExpiredSignatureError")
