"""How a cell begins and members join: a single broker's data, a trimmed log, engines that don't fit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
from proton.reactor import DurableSubscription

from broker.cluster.jetstream import LogServers
from broker.errors import OperatorError
from broker.server.member import check_place
from tests.cluster.applications import bodies, call, connection, send, take
from tests.cluster.conftest import skip_without_servers
from tests.cluster.world import Cell, MemberProcess, cell, wait_until
from tools.nats import NatsCluster, free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.wire]
TIMES = "  ttl: 2s\n  margin: 400ms\n  mark: 300ms\n"
POLICIES = """policies:
  - {match: "news", kind: topic, durable: true}
  - {match: "paged", kind: queue, durable: true, overflow: page, memory_limit: 1MB}
  - {match: "*", kind: queue, durable: true}
"""
LARGE = bytes(range(256)) * 20_480
PAGED = [f"{number}:" + "p" * 200_000 for number in range(25)]


def serve_alone(member: MemberProcess) -> None:
    """Start a single broker on a member's ports and data."""
    (member.folder / "alone.yaml").write_text(
        f"listeners: [amqp://127.0.0.1:{member.amqp}]\nhttp: 127.0.0.1:{member.http}\ndata: {member.data}\n"
        f"policies: [{member.folder / 'policies.yaml'}]\n"
        "store: {journal_file_size: 1MB}\n"
    )
    member.start("alone.yaml")
    wait_until(lambda: "ready" in member.said, "a single broker")


def fill(member: MemberProcess) -> None:
    """Have a broker keep something of each kind."""
    send(member.amqp, "plain", [f"plain {number}" for number in range(20)])
    with connection(member.amqp, container_id="reader") as reader:
        reader.create_receiver("news", name="kept", options=DurableSubscription())
    send(member.amqp, "copies", [])
    call(member.http, "POST", "/api/v1/bindings", {"source": "news", "target": "copies"})
    send(member.amqp, "news", ["told"])
    send(member.amqp, "large", [LARGE])
    send(member.amqp, "paged", PAGED)
    send(member.amqp, "later", ["not yet"], annotations={"x-opt-delivery-delay": 3_600_000})
    call(member.http, "POST", "/api/v1/producers/stop", {"target": "stopped.*"})


def has_all(member: MemberProcess) -> None:
    """Look at each of them, and leave it there."""
    shown = {each["name"]: each for each in member.api("/api/v1/queues?limit=100")["items"]}
    wanted = {"plain": 20, "copies": 1, "large": 1, "paged": len(PAGED)}
    assert {name: shown[name]["depth_msgs"] for name in wanted} == wanted
    assert len(member.api("/api/v1/queues/later/delayed")["messages"]) == 1
    bound = member.api("/api/v1/bindings")["items"]
    assert [(each["source"], each["target"]) for each in bound] == [("news", "copies")]
    assert member.api("/api/v1/holds") == {"holds": ["stopped.*"]}


def takes_all(member: MemberProcess) -> None:
    """Take all of it, and find it whole."""
    assert bodies(take(member.amqp, "plain", 20)) == [f"plain {number}" for number in range(20)]
    assert bodies(take(member.amqp, "copies", 1)) == ["told"]
    with connection(member.amqp, container_id="reader") as reader:
        subscription = reader.create_receiver("news", name="kept", options=DurableSubscription())
        assert subscription.receive(timeout=30).body == "told"
        subscription.accept()
    assert [each == LARGE for each in bodies(take(member.amqp, "large", 1))] == [True]
    assert bodies(take(member.amqp, "paged", len(PAGED))) == PAGED


def trimming(folder: Path, log: NatsCluster, name: str) -> AbstractContextManager[Cell]:
    """Make a cell of two members whose log is trimmed as soon as there is something to trim."""
    return cell(
        folder, members=2, extra=TIMES, policies=POLICIES, log=log, name=name, module="tests.cluster.eager"
    )


def test_a_broker_becomes_a_cell_and_what_is_left_of_it_a_new_one(
    tmp_path: Path, one_server: NatsCluster
) -> None:
    extra = TIMES
    with cell(tmp_path, members=2, extra=extra, policies=POLICIES, log=one_server, name="grown") as grown:
        first, second = grown.members
        serve_alone(first)
        fill(first)
        first.stop()
        first.start()
        assert grown.wait_for_owner() is first
        has_all(first)
        grown.settle()
        first.kill()
        assert grown.wait_for_owner(other_than=first) is second
        has_all(second)
        second.stop()
        # Then the log is lost.
        with cell(
            tmp_path / "again", members=1, extra=extra, policies=POLICIES, log=one_server, name="again"
        ) as again:
            [alone] = again.members
            shutil.copytree(second.data, alone.data)
            alone.start()
            wait_until(lambda: not alone.is_running, "a refusal")
            assert "it has followed a log up to group" in alone.log
            detach = [sys.executable, "-m", "broker.cli.main", "store", "detach", "--data", str(alone.data)]
            subprocess.run(detach, check=True, capture_output=True)
            alone.start()
            assert again.wait_for_owner() is alone
            has_all(alone)
            takes_all(alone)
            send(alone.amqp, "plain", ["goes on"])


def test_a_broker_that_is_killed_while_it_becomes_a_cell_becomes_one_when_it_is_started_again(
    tmp_path: Path, one_server: NatsCluster
) -> None:
    with cell(
        tmp_path,
        members=2,
        extra=TIMES,
        policies=POLICIES,
        log=one_server,
        name="half",
        module="tests.cluster.half",
    ) as made:
        first, second = made.members
        serve_alone(first)
        fill(first)
        # More than a piece of the snapshot has.
        send(first.amqp, "held", ["h" * 400_000] * 4)
        first.stop()
        first.start()
        wait_until(lambda: not first.is_running, "the end")
        second.start()

        def says_why() -> bool:
            with suppress(OSError):
                told = second.api("/api/v1/cluster")["members"][0]["fault"]
                return bool(told == "the log lacks its beginning, which only the directory of a has")
            return False

        wait_until(says_why, "a word")
        first.start()
        assert made.wait_for_owner() is first
        has_all(first)
        made.settle()
        first.kill()
        assert made.wait_for_owner(other_than=first) is second
        has_all(second)


def test_a_broker_that_is_told_to_stop_while_it_becomes_a_cell_stops_and_goes_on_with_it_later(
    tmp_path: Path, one_server: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUCK", "1")
    with cell(
        tmp_path,
        members=1,
        extra=TIMES,
        policies=POLICIES,
        log=one_server,
        name="stuck",
        module="tests.cluster.half",
    ) as made:
        [member] = made.members
        serve_alone(member)
        fill(member)
        member.stop()
        member.start()
        wait_until(lambda: "become the beginning of the cell's log" in member.log, "the beginning")
        member.signal(signal.SIGTERM)
        wait_until(lambda: not member.is_running, "the end")
        assert member.process is not None
        assert member.process.returncode == 0
        member.start()
        assert made.wait_for_owner() is member
        has_all(member)


def test_a_member_joins_behind_a_log_that_was_trimmed(tmp_path: Path, one_server: NatsCluster) -> None:
    with trimming(tmp_path, one_server, "trimmed") as made:
        owner = made.start()
        send(owner.amqp, "left", ["one", LARGE, "two"])
        for _ in range(3):
            send(owner.amqp, "gone", ["x" * 30_000] * 10)
            take(owner.amqp, "gone", 10)
        wait_until(lambda: made.stream()["first_seq"] > 1, "the log to be trimmed")
        send(owner.amqp, "left", ["behind the snapshot"])
        made.settle()
        [joining] = made.standbys
        joining.stop()
        shutil.rmtree(joining.data)
        made.settle()
        assert "loading the snapshot of group" in joining.log
        owner.kill()
        assert made.wait_for_owner(other_than=owner) is joining
        found = bodies(take(joining.amqp, "left", 4))
        assert [found[0], bytes(found[1]) == LARGE, *found[2:]] == ["one", True, "two", "behind the snapshot"]


def test_a_standby_that_slept_while_the_log_was_trimmed_joins_anew_and_takes_over(
    tmp_path: Path, one_server: NatsCluster
) -> None:
    with trimming(tmp_path, one_server, "slept") as made:
        owner = made.start()
        send(owner.amqp, "left", ["one", LARGE])
        made.settle()
        [sleeper] = made.standbys
        sleeper.signal(signal.SIGSTOP)
        wait_until(lambda: sleeper.is_stopped, "the stop")
        last = made.stream()["last_seq"]

        def trimmed_beyond() -> bool:
            send(owner.amqp, "gone", ["x" * 30_000] * 10)
            take(owner.amqp, "gone", 10)
            return bool(made.stream()["first_seq"] > last + 1)

        wait_until(trimmed_beyond, "the log to be trimmed beyond the standby's place")
        send(owner.amqp, "left", ["behind the snapshot"])
        sleeper.signal(signal.SIGCONT)
        wait_until(lambda: "its place in the log is gone" in sleeper.log, "a word")
        made.settle()
        owner.kill()
        assert made.wait_for_owner(other_than=owner) is sleeper
        found = bodies(take(sleeper.amqp, "left", 3))
        assert [found[0], bytes(found[1]) == LARGE, found[2]] == ["one", True, "behind the snapshot"]


@contextmanager
def service_manager(path: Path) -> Iterator[list[bytes]]:
    """Listen where a service manager would, and note each datagram."""
    told: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))

        def listen() -> None:
            # A manager that doesn't read is told nothing.
            while (said := manager.recv(100)) != b"enough":
                told.append(said)

        listening = threading.Thread(target=listen)
        listening.start()
        try:
            yield told
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(b"enough", str(path))
            listening.join(30)


def test_a_standby_tells_its_service_manager_and_outlives_being_told_to_read_again(
    tmp_path: Path, one_server: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service_manager(tmp_path / "notify") as told:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with cell(tmp_path, members=2, extra=TIMES, log=one_server, name="told") as made:
            owner = made.start()
            made.settle()
            assert told.count(b"READY=1") == 2
            owner.signal(signal.SIGSTOP)
            wait_until(lambda: owner.is_stopped, "the stop")
            before = len(told)
            wait_until(lambda: b"WATCHDOG=1" in told[before:], "a sign of life")
            owner.signal(signal.SIGCONT)
            made.settle()
            [standby] = made.standbys
            standby.signal(signal.SIGHUP)
            wait_until(lambda: "read again when this member takes over" in standby.said, "a word")
            made.settle()


def test_a_member_that_restores_tells_its_service_manager(
    tmp_path: Path, one_server: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service_manager(tmp_path / "notify") as told:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with cell(
            tmp_path, members=1, extra=TIMES, log=one_server, name="patient", module="tests.cluster.patient"
        ) as made:
            [member] = made.members
            member.start()
            wait_until(lambda: "restoring" in member.said, "the take-over")
            before = len(told)
            wait_until(lambda: b"WATCHDOG=1" in told[before:], "a sign of life")
            assert f"{member.name} owns cell" not in member.said
            assert made.wait_for_owner() is member


def test_an_owner_whose_disk_is_broken_leaves_the_cell_and_comes_back_as_a_standby(
    tmp_path: Path, one_server: NatsCluster
) -> None:
    module = "tests.cluster.failing"
    with cell(
        tmp_path, members=2, extra=TIMES, policies=POLICIES, log=one_server, name="failing", module=module
    ) as made:
        owner = made.start()
        made.settle()
        send(owner.amqp, "kept", ["one", "two"])
        (owner.folder / "fail").touch()
        after = made.wait_for_owner(other_than=owner)
        assert bodies(take(after.amqp, "kept", 2)) == ["one", "two"]
        assert "the disk is broken" in owner.said
        assert f"{after.name} takes the cell over" in owner.said
        wait_until(lambda: owner.is_standby, "a standby")
        # Alone it begins anew as well, and owns the cell again.
        owner.kill()
        epoch = after.epoch_owned
        (after.folder / "fail").touch()
        wait_until(lambda: after.epoch_owned > epoch, "the next epoch")
        assert "this member has let go of the cell" in after.said


def test_data_beside_which_nothing_can_be_put_are_refused() -> None:
    if not os.path.ismount("/dev/shm"):
        pytest.skip("there is no file system of its own at /dev/shm")
    with pytest.raises(OperatorError, match="/dev is on another file system: name a directory below"):
        check_place(Path("/dev/shm"))


def test_a_member_waits_for_servers_that_are_not_there_yet(tmp_path: Path) -> None:
    skip_without_servers()
    with cell(tmp_path, members=1, servers=1, extra=TIMES) as made:
        [member] = made.members
        member.start()
        wait_until(lambda: "the cell's log can't be had yet" in member.log, "a word")
        with urllib.request.urlopen(f"http://127.0.0.1:{member.http}/healthz", timeout=5) as answer:
            assert answer.read() == b"ok\n"
        made.log.start()
        assert made.wait_for_owner() is member
        send(member.amqp, "q", ["served"])


def test_a_stream_with_other_settings_is_refused_by_name(tmp_path: Path, one_server: NatsCluster) -> None:
    connection = LogServers(tuple(one_server.urls)).connect()
    settings = {"name": "SLUICE_other", "subjects": ["sluice.other.log"], "max_age": 3_600_000_000_000}
    answer = connection.request("$JS.API.STREAM.CREATE.SLUICE_other", json.dumps(settings).encode())
    assert b"error" not in answer.data
    connection.close()
    with cell(tmp_path, members=1, extra=TIMES, log=one_server, name="other") as made:
        [member] = made.members
        member.start()
        wait_until(lambda: not member.is_running, "the end")
        assert member.process is not None
        assert member.process.returncode == 1
        assert "stream SLUICE_other has other settings than a cell's log needs: " in member.log
        assert "max_age is 3600000000000 instead of 0" in member.log


@contextmanager
def old_server(version: str) -> Iterator[int]:
    """A server that says a version of itself and knows nothing else; its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    said = {
        "server_id": "old",
        "version": version,
        "jetstream": True,
        "max_payload": 1 << 20,
        "headers": True,
    }

    def answer(sock: socket.socket) -> None:
        with sock, suppress(OSError):
            sock.sendall(b"INFO " + json.dumps(said).encode() + b"\r\n")
            while data := sock.recv(4096):
                sock.sendall(b"PONG\r\n" * data.count(b"PING\r\n"))

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def test_a_server_that_is_too_old_is_refused(tmp_path: Path, one_server: NatsCluster) -> None:
    with old_server("2.11.3") as port:
        member = MemberProcess("a", tmp_path, [port], free_ports(3), 0, TIMES, "policies: []\n")
        try:
            member.start()
            wait_until(lambda: not member.is_running, "the end")
            assert member.process is not None
            assert member.process.returncode == 1
            assert "nats-server 2.11.3 is too old: 2.15.0 or newer is needed" in member.log
        finally:
            member.close()


def test_a_second_member_of_one_name_refuses_to_start(tmp_path: Path, one_server: NatsCluster) -> None:
    with (
        cell(tmp_path / "one", members=1, extra=TIMES, log=one_server, name="twins") as made,
        cell(tmp_path / "two", members=1, extra=TIMES, log=one_server, name="twins") as twins,
    ):
        owner = made.start()
        [twin] = twins.members
        twin.start()
        wait_until(lambda: not twin.is_running, "a refusal")
        assert twin.process is not None
        assert twin.process.returncode == 1
        assert f"is called 'a' (amqp://127.0.0.1:{owner.amqp}): each needs a name of its own" in twin.log
        assert made.owner is owner
        send(owner.amqp, "q", ["still served"])
