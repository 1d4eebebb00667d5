"""The management verbs as an operator types them, against a running broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.errors import OperatorError
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice

pytestmark = pytest.mark.wire


def sluice(broker: RunningBroker, *words: str, status: int = 0) -> str:
    """What it prints; on stderr if it is refused."""
    done = run_sluice(*words, env={"SLUICE_BROKER": broker.url})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def parsed(broker: RunningBroker, *words: str) -> Any:
    """What it prints with --json."""
    return json.loads(sluice(broker, *words, "--json"))


def test_a_queue_from_creation_to_deletion(broker: RunningBroker) -> None:
    assert (
        sluice(broker, "config", "add", "queue", "orders", "--max-queue-count", "10")
        == "created queue orders\n"
    )
    assert sluice(broker, "config", "add", "topic", "news") == "created topic news\n"
    assert [row["name"] for row in parsed(broker, "config", "queues")] == ["orders"]
    assert [row["name"] for row in parsed(broker, "config", "exchanges")] == ["news"]
    assert "orders" in sluice(broker, "config", "list", "ord*")
    sluice(broker, "config", "set", "queue", "orders", "--flow-stop-count", "5", "--flow-resume-count", "2")
    settings = {row["name"]: row for row in parsed(broker, "explain", "orders")["settings"]}
    assert settings["flow_stop_count"] == {"name": "flow_stop_count", "value": 5, "origin": "argument"}
    assert sluice(broker, "config", "del", "queue", "orders") == "deleted queue orders\n"
    assert parsed(broker, "config", "queues") == []


def test_a_binding_is_ended_by_its_two_names(broker: RunningBroker) -> None:
    """Of names with slashes too: topic x and queue b/c are not topic x/b and queue c."""
    for topic, queue in (("x", "b/c"), ("x/b", "c")):
        sluice(broker, "config", "add", "topic", topic)
        sluice(broker, "config", "bind", topic, queue)
    assert sluice(broker, "config", "unbind", "x", "b/c") == "unbound queue b/c from topic x\n"
    assert parsed(broker, "config", "bindings") == [{"source": "x/b", "target": "c"}]
    assert "'b/c' is not bound to 'x'" in sluice(broker, "config", "unbind", "x", "b/c", status=1)
    assert parsed(broker, "config", "bindings") == [{"source": "x/b", "target": "c"}]


def test_an_empty_file_of_policies_is_one(broker: RunningBroker) -> None:
    assert sluice(broker, "config", "apply", "/dev/null") == "applied; changed: nothing that exists\n"


def backups_of(broker: RunningBroker) -> Path:
    return broker.config_file.parent / "data" / "backups"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_is_a_name_in_the_brokers_own_folder(start_broker: StartBroker) -> None:
    broker = start_broker()
    said = sluice(broker, "store", "backup", "monday")
    assert said == f"backed up to {backups_of(broker) / 'monday'}\n"
    assert (backups_of(broker) / "monday" / "directory.mdb").exists()
    # Its whole path is a name too, and options stand wherever they like.
    sluice(broker, "store", "backup", "-b", broker.url, str(backups_of(broker) / "tuesday"))
    sluice(broker, "store", "-b", broker.url, "backup", "--json", "wednesday")
    assert names_in(backups_of(broker)) == ["monday", "tuesday", "wednesday"]
    assert "exists already" in sluice(broker, "store", "backup", "monday", status=1)
    # One backup isn't in the next, and the copy of a directory no broker has leaves them out too.
    assert not (backups_of(broker) / "wednesday" / "backups").exists()


@pytest.mark.parametrize(
    "target",
    [
        *("/etc/cron.d/x", "/tmp/x", "../x", "a/../../x", "x/y", "..", ".x", "-x", "a\0b", "x\n", "a" * 101),
        *("{folder}/../x", "{folder}/a/b", "{folder}/link/x", "{folder}/", "link", "dangling"),
    ],
)
def test_a_backup_goes_nowhere_else(backed_up: RunningBroker, tmp_path: Path, target: str) -> None:
    folder = backups_of(backed_up)
    before = sorted(folder.rglob("*"))
    with Management(backed_up.url) as management, pytest.raises(OperatorError) as refusal:
        management.call(
            "backup", "org.sluice.broker", body={"target": target.replace("{folder}", str(folder))}
        )
    assert re.search(r"outside .*/backups, where|is no name for a backup|exists already", str(refusal.value))
    assert sorted(folder.rglob("*")) == before
    assert [path for path in folder.parent.parent.iterdir() if path.name == "x"] == []
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("backed-up"), "", "", ())
    backups_of(broker).mkdir()
    (backups_of(broker) / "link").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    (backups_of(broker) / "dangling").symlink_to("/nowhere/at/all")
    yield broker
    broker.stop()


def test_there_are_only_so_many_backups_and_where_is_the_operators_choice(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    place = tmp_path / "mine"
    config = f"backup_directory: {place}\nlimits: {{max_backups: 2}}\n"
    broker = start_broker(config)
    for name in ("one", "two"):
        sluice(broker, "store", "backup", name)
    assert names_in(place) == ["one", "two"]
    assert "holds 2 backups already (limits.max_backups)" in sluice(broker, "store", "backup", "x", status=1)
    (place / "two").rename(tmp_path / "taken away")
    sluice(broker, "store", "backup", "three")


def test_a_backup_that_can_not_be_made_blocks_no_other(start_broker: StartBroker, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    broker = start_broker(f"backup_directory: {place}\n")
    place.write_text("in the way")
    with Management(broker.url) as management, pytest.raises(OperatorError, match=r"mine: can't be written"):
        failing_backup(management, "copy")
    place.unlink()
    sluice(broker, "store", "backup", "copy")
    assert (place / "copy").is_dir()


def test_a_start_removes_what_a_killed_broker_had_begun(tmp_path: Path) -> None:
    begun = tmp_path / "broker" / "data" / "backups" / ".monday.begun"
    (begun / "large").mkdir(parents=True)
    broker = RunningBroker(tmp_path / "broker", "", "", ())
    assert not begun.exists()
    assert broker.stop() == 0


def failing_backup(management: Management, target: str) -> None:
    """OperatorError with the reason, at once or once it has failed."""

    def done() -> bool:
        body = management.call("backup-done", "org.sluice.broker", body={}).body
        assert isinstance(body, dict)
        return bool(body["done"])

    management.call("backup", "org.sluice.broker", body={"target": target})
    wait_until(done, 10, "the backup to fail")


def test_refusals_exit_1_with_the_reason(broker: RunningBroker) -> None:
    sluice(broker, "config", "add", "queue", "orders")
    assert "'orders' exists already" in sluice(broker, "config", "add", "queue", "orders", status=1)
    both = ("--flow-stop-count", "5", "--flow-resume-count", "9")
    refusal = sluice(broker, "config", "add", "queue", "x", *both, status=1)
    assert "flow_resume_count 9 is more than flow_stop_count 5" in refusal
    assert "control characters" in sluice(broker, "config", "add", "queue", "a\x1b[31m", status=1)
    assert "'orders' is a queue" in sluice(broker, "config", "bind", "orders", "inbox", status=1)
    assert "has no key" in sluice(broker, "config", "bind", "news", "inbox", "key", status=1)
    assert "nobody" in sluice(broker, "why", "nobody", status=1)


def test_a_line_that_makes_no_sense_exits_2(broker: RunningBroker) -> None:
    assert "set needs a setting" in sluice(broker, "config", "set", "queue", "orders", status=2)
    assert "unrecognized arguments: --nonsense" in sluice(broker, "stat", "--nonsense", status=2)
    assert "unknown verb 'stats' (did you mean 'stat'?)" in sluice(broker, "stats", status=2)


def test_a_blocked_producer_in_stat_and_why(broker: RunningBroker) -> None:
    sluice(broker, "config", "add", "queue", "orders", "--flow-stop-count", "3")
    sending = subprocess.Popen(
        [sys.executable, "-m", "broker.cli.main", "send", "orders", "--count", "4", "-b", broker.url],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        while not any(row["blocked"] for row in parsed(broker, "stat", "-f")["senders"]):
            assert sending.poll() is None
        [flow] = parsed(broker, "stat", "-f")["flow"]
        assert (flow["flowStopped"], flow["depth_msgs"], flow["flow_stop_count"]) == (True, 3, 3)
        sentence = sluice(broker, "why", "orders")
        assert "is stopped by flow_stop_count (3 of 3 messages queued), nothing leaves it" in sentence
        sluice(
            broker, "config", "set", "queue", "orders", "--flow-stop-count", "10", "--flow-resume-count", "10"
        )
        assert "4 accepted" in sending.communicate(timeout=30)[0]
    finally:
        sending.kill()
        sending.wait()


def test_producers_stop_and_start(broker: RunningBroker) -> None:
    sluice(broker, "config", "add", "queue", "orders.eu")
    assert sluice(broker, "producers", "stop", "orders.>") == "producers stopped: orders.eu\n"
    assert "stopped by an operator (producers stopped for 'orders.>')" in sluice(broker, "why", "orders.eu")
    stuck = sluice(broker, "send", "orders.us", "--timeout", "500ms", status=1)
    assert "no credit" in stuck
    assert "orders.eu" in sluice(broker, "producers", "start", "--all")
    assert "1 accepted" in sluice(broker, "send", "orders.us", "--timeout", "10s")


def test_policies_are_applied_from_a_file(broker: RunningBroker, tmp_path: Path) -> None:
    sluice(broker, "config", "add", "queue", "orders")
    file = tmp_path / "orders.yaml"
    file.write_text("policies:\n  - match: orders\n    flow_stop_count: 7\n")
    assert sluice(broker, "config", "apply", str(file)) == "applied; changed: orders\n"
    assert f"{file}:3:5" in sluice(broker, "explain", "orders")
    file.write_text("policies:\n  - match: orders\n    flow_stop_cuont: 7\n")
    assert f"{file}:3:5: unknown key 'flow_stop_cuont'" in sluice(
        broker, "config", "apply", str(file), status=1
    )


@pytest.mark.parametrize("flag", ["-g", "-c", "-q", "-u", "-f"])
def test_every_view_prints_as_a_table_and_as_json(broker: RunningBroker, flag: str) -> None:
    assert sluice(broker, "stat", flag)
    assert parsed(broker, "stat", flag)


def test_an_unreachable_broker_is_said_in_one_line(broker: RunningBroker) -> None:
    words = ("stat", "-q", "-b", "amqp://127.0.0.1:1")
    assert len(sluice(broker, *words, status=1).splitlines()) == 1


def test_watch_repeats_until_interrupted(broker: RunningBroker) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "broker.cli.main", "stat", "-q", "--watch", "100ms", "-b", broker.url],
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        seen = 0
        while seen < 3:
            seen += watching.stdout.readline() == "Queues\n"
        watching.send_signal(2)
        watching.stdout.read()
    assert watching.returncode == 130


def test_many_large_messages_are_browsed_as_they_are(broker: RunningBroker) -> None:
    """More than the memory that a decoded answer leaves behind: each line is its own message's, each time."""
    bodies = [f"{number:03}".ljust(20_000, chr(97 + number % 26)) for number in range(120)]
    with Connection(broker.url) as connection:
        sender = connection.sender("large")
        for body in bodies:
            sender.send(sections.binary_body(body.encode()), 20.0)
        sender.flush(20.0)
    for offset in (0, 50, 100):
        words = ("browse", "large", "--count", "120", "--offset", str(offset), "--json")
        rows = [json.loads(line) for line in sluice(broker, *words).splitlines()]
        assert rows
        assert [row["body"] for row in rows] == bodies[offset : offset + len(rows)]
    for _ in range(3):
        lines = sluice(broker, "browse", "large", "--count", "120").splitlines()
        assert [line.split()[4][:3] for line in lines] == [body[:3] for body in bodies[: len(lines)]]
