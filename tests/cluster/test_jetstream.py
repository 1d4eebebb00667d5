"""The log and the bodies on real servers, their leader killed and stopped under load."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from broker.cluster.jetstream import JetStreamLog, LogServers, check_stream, unsynced
from broker.cluster.log import Acked, AppendRefused, LogEntry, LogUnavailable, Outcome, Unknown
from broker.cluster.nats import NatsConnection
from broker.cluster.pipeline import AppendPipeline
from broker.errors import OperatorError
from tools.nats import NatsCluster, NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.wire]
WAIT_S = 60.0
# For an answer where a test is not about its being late: three disks that are busy sync a record in seconds.
PATIENT_S = 20.0
WINDOW = 16


def eventually(what: Callable[[], bool], said: str) -> None:
    """Wait until something holds; the engine may be without a leader meanwhile."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if what():
                return
        except LogUnavailable as fault:
            said = f"{said}: {fault}"
        assert time.monotonic() < deadline, said[:500]
        time.sleep(0.05)


def opened(cluster: NatsCluster, cell: str, timeout_s: float = PATIENT_S) -> JetStreamLog:
    log = JetStreamLog(LogServers(tuple(cluster.urls), timeout_s), cell)

    def is_made() -> bool:
        log.prepare()
        return True

    eventually(is_made, "the stream isn't made")
    return log


@pytest.fixture
def log(cluster: NatsCluster, request: pytest.FixtureRequest) -> Iterator[JetStreamLog]:
    """The log of a cell that no other test uses."""
    made = opened(cluster, f"cell{abs(hash(request.node.name)):x}")
    yield made
    made.close()


def outcomes(log: JetStreamLog, count: int) -> list[Outcome]:
    found: list[Outcome] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += log.outcomes(0.5)
    return found


def fill(log: JetStreamLog, data: list[bytes], after: int = 0) -> None:
    """Append records; a stream that was just made, or elects its leader, may take none at first."""

    def is_taken() -> bool:
        for at, each in enumerate(data):
            log.append(each, after + at)
        found = outcomes(log, len(data))
        if all(isinstance(each, Unknown) for each in found) and log.last() == after:
            return False
        assert found == [Acked(after + at, after + at + 1) for at in range(len(data))]
        return True

    eventually(is_taken, "no record is taken")


def everything(log: JetStreamLog, begin: int = 1) -> list[LogEntry]:
    """Read to the position that the leader calls the last; a replica that answers may be behind it."""
    found: list[LogEntry] = []

    def is_whole() -> bool:
        last = log.last()
        while more := log.read(begin + len(found), 1 << 20):
            found.extend(more)
        return begin + len(found) > last

    eventually(is_whole, "not everything can be read")
    return found


def test_records_are_appended_and_read_in_order(log: JetStreamLog) -> None:
    assert (log.first(), log.last(), log.read(1, 1000)) == (1, 0, [])
    data = [b"%d" % at * (at * 7 + 1) for at in range(WINDOW)]
    fill(log, data)
    assert (log.first(), log.last()) == (1, WINDOW)
    assert everything(log) == [LogEntry(at + 1, each) for at, each in enumerate(data)]


def test_a_read_ends_at_its_bytes_with_one_record_at_least(log: JetStreamLog) -> None:
    data = [bytes([at]) * (300 << 10) for at in range(4)]
    fill(log, data)
    everything(log)
    assert [each.position for each in log.read(2, 1)] == [2]
    assert [each.position for each in log.read(1, 500 << 10)] == [1, 2]


def test_a_record_of_half_a_megabyte_and_its_head_fits(log: JetStreamLog) -> None:
    data = bytes(range(256)) * 2048 + b"x" * 200
    fill(log, [data])
    assert everything(log) == [LogEntry(1, data)]


def test_a_stale_writer_is_refused(cluster: NatsCluster, log: JetStreamLog) -> None:
    fill(log, [b"one", b"two"])
    stale = JetStreamLog(LogServers(tuple(cluster.urls)), log.stream.removeprefix("SLUICE_"))
    for after in (0, 1, 7):
        stale.append(b"stale", after)
    assert outcomes(stale, 3) == [AppendRefused(0), AppendRefused(1), AppendRefused(7)]
    stale.close()
    assert [each.data for each in everything(log)] == [b"one", b"two"]


def test_two_writers_on_one_condition_are_decided_once(cluster: NatsCluster, log: JetStreamLog) -> None:
    other = JetStreamLog(LogServers(tuple(reversed(cluster.urls))), log.stream.removeprefix("SLUICE_"))
    for after in range(30):
        log.append(b"a", after)
        other.append(b"b", after)
        told = sorted(type(each).__name__ for each in outcomes(log, 1) + outcomes(other, 1))
        assert told == ["Acked", "AppendRefused"]
    other.close()
    assert len(everything(log)) == 30


def test_what_is_trimmed_is_gone_and_positions_go_on(log: JetStreamLog) -> None:
    fill(log, [b"x"] * 10)
    log.trim(8)
    assert (log.first(), log.last()) == (8, 10)
    eventually(lambda: log.read(1, 1000) == [], "a replica still has it")
    assert [each.position for each in everything(log, 8)] == [8, 9, 10]
    log.trim(11)
    assert (log.first(), log.last()) == (11, 10)
    fill(log, [b"y"], 10)
    assert log.nbytes() > 0


def test_bodies_are_kept_replaced_and_dropped(log: JetStreamLog) -> None:
    pieces = [bytes([at % 256]) * (200 << 10) for at in range(40)]
    log.put_body("one", iter(pieces))
    log.put_body("two", iter([b"2"]))
    eventually(lambda: list(log.get_body("one")) == pieces, "a body isn't whole")
    log.put_body("one", iter([b"new"]))
    eventually(lambda: list(log.get_body("one")) == [b"new"], "a body isn't replaced")
    assert log.body_keys() == {"one", "two"}
    log.drop_body("one")
    assert log.body_keys() == {"two"}
    eventually(lambda: list(log.get_body("one")) == [], "a body isn't dropped")
    eventually(lambda: list(log.get_body("two")) == [b"2"], "another body went with it")
    assert list(log.get_body("none")) == []


def test_a_stream_with_other_settings_is_refused_each_named(cluster: NatsCluster) -> None:
    connection = NatsConnection(cluster.urls, 5)
    wrong = {"name": "SLUICE_wrong", "subjects": ["sluice.wrong.log", "sluice.wrong.more"], "num_replicas": 1}
    wrong |= {"max_msgs": 7, "allow_rollup_hdrs": True, "storage": "file", "retention": "limits"}
    answer = json.loads(
        connection.request("$JS.API.STREAM.CREATE.SLUICE_wrong", json.dumps(wrong).encode()).data
    )
    assert "error" not in answer
    connection.close()
    log = JetStreamLog(LogServers(tuple(cluster.urls)), "wrong")
    with pytest.raises(OperatorError) as told:
        log.prepare()
    log.close()
    assert not isinstance(told.value, LogUnavailable)
    for word in ("subjects", "num_replicas", "max_msgs", "allow_direct", "allow_rollup_hdrs"):
        assert word in str(told.value)


def test_a_stream_that_acknowledges_before_it_writes_is_refused(cluster: NatsCluster) -> None:
    connection = NatsConnection(cluster.urls, 5)
    wrong = {"name": "ASYNC", "subjects": ["async"], "num_replicas": 1, "persist_mode": "async"}
    answer = json.loads(connection.request("$JS.API.STREAM.CREATE.ASYNC", json.dumps(wrong).encode()).data)
    connection.close()
    with pytest.raises(OperatorError, match="persist_mode is 'async'"):
        check_stream("ASYNC", answer["config"], {})


def test_servers_that_sync_each_record_are_not_warned_of(cluster: NatsCluster) -> None:
    assert unsynced([each.jetstream() for each in cluster.servers]) == []


def test_presence_reaches_subscribers(cluster: NatsCluster) -> None:
    hearing, speaking = (NatsConnection([url], 5) for url in cluster.urls[:2])
    number = hearing.subscribe("sluice.main.member.*")
    found = []

    def is_heard() -> bool:
        # A subscription reaches the other servers some time after it was made.
        speaking.publish("sluice.main.member.a", b"{}")
        found.extend(hearing.messages(0.2))
        return bool(found)

    eventually(is_heard, "nothing is heard")
    assert (found[0].subject, found[0].data, found[0].subscription) == ("sluice.main.member.a", b"{}", number)
    assert speaking.request("sluice.nobody").status == 503
    hearing.close()
    speaking.close()


# --- faults


def leader(cluster: NatsCluster, log: JetStreamLog) -> NatsServer:
    name = ""

    def is_led() -> bool:
        nonlocal name
        name = str(log.state()["cluster"].get("leader", ""))
        return bool(name)

    eventually(is_led, "no leader")
    return next(each for each in cluster.servers if each.name == name)


def drive(log: JetStreamLog, pipeline: AppendPipeline, told: list[Outcome]) -> None:
    """One turn of a writer: send, hear, look where something isn't known."""
    for data, after in pipeline.to_send():
        log.append(data, after)
    for outcome in log.outcomes(0.2):
        told.append(outcome)
        pipeline.outcome(outcome)
    if position := pipeline.look_from:
        try:
            last = log.last()
            entries = log.read(position, 4 << 20)
        except LogUnavailable:
            return
        pipeline.looked(entries, is_tail=position + len(entries) > last)


def under_load(cluster: NatsCluster, cell: str, fault: Callable[[NatsServer], None]) -> None:
    """Append with 16 in flight, meanwhile do something to the leader; look at what is there afterwards."""
    log = opened(cluster, cell, timeout_s=2.0)
    data = [b"%08d" % at + b"x" * 4000 for at in range(3000)]
    pipeline = AppendPipeline(epoch=1, position=0, group=0, window=WINDOW)
    told: list[Outcome] = []
    hurt = None
    deadline = time.monotonic() + 2 * WAIT_S
    for at, each in enumerate(data):
        pipeline.submit(each, at + 1)
        while not pipeline.has_room:
            assert time.monotonic() < deadline, (at, pipeline.acked_position, told[-3:])
            if hurt is None and pipeline.acked > 1000:
                hurt = leader(cluster, log)
                fault(hurt)
            drive(log, pipeline, told)
    while not pipeline.is_empty:
        assert time.monotonic() < deadline, (pipeline.acked_position, told[-3:])
        drive(log, pipeline, told)
    assert hurt is not None
    assert {type(each) for each in told} <= {Acked, AppendRefused, Unknown}
    assert any(not isinstance(each, Acked) for each in told), "the fault hit nothing in flight"
    assert (pipeline.acked_group, pipeline.acked_position, pipeline.fenced) == (len(data), len(data), 0)
    found = everything(log)
    log.close()
    assert [each.data for each in found] == data
    # Each acknowledgement told the truth when it was told.
    assert all(found[each.after].position == each.position for each in told if isinstance(each, Acked))


def test_the_leader_killed_under_load_loses_and_doubles_nothing(cluster: NatsCluster) -> None:
    killed: list[NatsServer] = []

    def kill(server: NatsServer) -> None:
        server.kill()
        killed.append(server)

    try:
        under_load(cluster, "killed", kill)
    finally:
        for each in killed:
            each.start()
            eventually(each.is_ready, "a server doesn't come back")


def test_the_leader_stopped_under_load_loses_and_doubles_nothing(cluster: NatsCluster) -> None:
    stopped: list[NatsServer] = []

    def stop(server: NatsServer) -> None:
        server.signal(signal.SIGSTOP)
        stopped.append(server)

    try:
        under_load(cluster, "stopped", stop)
    finally:
        for each in stopped:
            each.signal(signal.SIGCONT)
            eventually(each.is_ready, "a server doesn't wake")


def test_a_lost_connection_makes_what_is_outstanding_unknown(cluster: NatsCluster) -> None:
    log = opened(cluster, "lost")
    fill(log, [b"one"])
    log.engine = replace(log.engine, timeout_s=2.0)
    served = next(each for each in cluster.servers if each.url == log.url)
    served.signal(signal.SIGSTOP)
    try:
        for after in (1, 2):
            log.append(b"later", after)
        started = time.monotonic()
        assert outcomes(log, 2) == [Unknown(1), Unknown(2)]
        assert time.monotonic() - started < 2 * log.engine.timeout_s + 1
        # The next call finds another server; who leads may have to be found out first.
        eventually(lambda: log.last() >= 1, "no other server answers")
        assert log.url != served.url
    finally:
        served.signal(signal.SIGCONT)
        eventually(served.is_ready, "a server doesn't wake")
        log.close()


def test_without_any_server_each_call_ends_in_time() -> None:
    log = JetStreamLog(replace(LogServers(("nats://127.0.0.1:1",)), timeout_s=0.5), "none")
    started = time.monotonic()
    for call in (log.last, log.first, lambda: log.read(1, 1), lambda: log.trim(1), log.prepare):
        with pytest.raises(LogUnavailable):
            call()
    log.append(b"x", 0)
    assert log.outcomes(0) == [Unknown(0)]
    assert time.monotonic() - started < 10
