"""sluice send, receive and bench, as a user runs them, against the bare loop."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench.contenders import Running
from tests.wire.client_fixtures import bare, peer
from tests.wire.forked import run_sluice

__all__ = ["bare", "peer"]  # fixtures

pytestmark = pytest.mark.wire


def sluice(to: Running | str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs one command to its end."""
    verb, *rest = words
    url = to if isinstance(to, str) else to.url
    return run_sluice(verb, "-b", url, *rest, given=given, warnings_are_errors=True)


def test_what_is_sent_is_received(bare: Running) -> None:
    sent = sluice(bare, "send", "text", "--body", "héllo", "--count", "3", "--json")
    assert sent.returncode == 0
    assert json.loads(sent.stdout) | {"sent": 3, "accepted": 3, "rejected": 0} == json.loads(sent.stdout)
    got = sluice(bare, "receive", "text", "--count", "3", "--timeout", "5s")
    assert (got.returncode, got.stdout) == (0, "héllo\n" * 3)


def test_a_body_cannot_command_the_terminal(bare: Running) -> None:
    sluice(bare, "send", "escape", "--body", "\x1b]0;x\x07a\nb\x9b2J\u202e")
    got = sluice(bare, "receive", "escape", "--count", "1", "--timeout", "5s")
    assert got.stdout == "\\x1b]0;x\\x07a\\nb\\x9b2J\\u202e\n"


def test_fewer_than_the_count_is_a_refusal(bare: Running) -> None:
    got = sluice(bare, "receive", "empty", "--count", "1", "--timeout", "50ms")
    assert (got.returncode, got.stdout) == (1, "")
    assert "received 0 from empty" in got.stderr


def test_rows_of_a_csv_file_become_objects(bare: Running, tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text('origin,note\nJFK,"two\nlines"\nLGA,\n')
    assert sluice(bare, "send", "rows", "--csv", str(file)).returncode == 0
    got = sluice(bare, "receive", "rows", "--count", "2", "--timeout", "5s", "--json")
    bodies = [json.loads(json.loads(line)["body"]) for line in got.stdout.splitlines()]
    assert bodies == [{"origin": "JFK", "note": "two\nlines"}, {"origin": "LGA", "note": ""}]


def test_a_bad_row_is_located_and_what_was_sent_is_told(bare: Running, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("a,b\n1,2\n3\n")
    sent = sluice(bare, "send", "bad", "--csv", str(file))
    assert sent.returncode == 2
    assert f"{file}:3: 1 values for 2 columns" in sent.stderr
    assert "sent 1 to bad: 1 accepted" in sent.stdout


def test_json_lines_from_stdin(bare: Running) -> None:
    assert sluice(bare, "send", "lines", "--jsonl", "-", given='{"a": 1}\n\n[2]\n').returncode == 0
    got = sluice(bare, "receive", "lines", "--count", "2", "--timeout", "5s")
    assert got.stdout == '{"a": 1}\n[2]\n'
    sent = sluice(bare, "send", "lines", "--jsonl", "-", given="1\n{oops\n")
    assert sent.returncode == 2
    assert "-:2:2: no JSON" in sent.stderr


def test_a_rate_paces_both_ends(bare: Running) -> None:
    sent = sluice(bare, "send", "paced", "--count", "50", "--rate", "500", "--json")
    assert json.loads(sent.stdout)["seconds"] >= 0.098
    got = sluice(bare, "receive", "paced", "--count", "50", "--rate", "500", "--no-output")
    assert got.returncode == 0
    assert float(got.stderr.split(" in ")[1].split()[0]) >= 0.098


def test_properties_travel(bare: Running) -> None:
    sluice(bare, "send", "named", "--property", "colour=blue", "--durable")
    got = sluice(bare, "receive", "named", "--count", "1", "--json", "--timeout", "5s")
    message = json.loads(got.stdout)
    assert (message["application_properties"], message["durable"]) == ({"colour": "blue"}, True)


def test_bench_finds_the_local_broker_and_counts(bare: Running) -> None:
    run = sluice(bare, "bench", "--seconds", "1", "--warmup", "100ms", "--rate", "1000", "--json")
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["job"]["pid"] == bare.pid
    assert result["lost"] == 0
    assert result["broker_cpu_us"] is not None
    assert result["flow_stopped_s"] is None


@pytest.mark.parametrize(
    "words", [("send",), ("receive", "q", "--timeout", "1x"), ("bench", "--senders", "-1")]
)
def test_nonsense_is_a_usage_error(bare: Running, words: tuple[str, ...]) -> None:
    run = sluice(bare, *words)
    assert run.returncode == 2
    assert "usage: sluice" in run.stderr


def test_a_rejection_is_told_with_its_reason(peer: str) -> None:
    sent = sluice(peer, "send", "picky", "--count", "4")
    assert sent.returncode == 1
    assert "sent 4 to picky: 2 accepted, 2 rejected" in sent.stdout
    assert "amqp:resource-limit-exceeded: the queue is full" in sent.stdout


def test_a_refused_address_is_told_with_its_reason(peer: str) -> None:
    sent = sluice(peer, "send", "forbidden")
    assert (sent.returncode, sent.stderr) == (1, "sluice send: amqp:unauthorized-access: no entry for you\n")


def test_time_without_credit_is_told(peer: str) -> None:
    sent = sluice(peer, "send", "dry", "--timeout", "200ms", "--json")
    assert sent.returncode == 1
    assert json.loads(sent.stdout)["blocked_s"] >= 0.19
    assert "no credit for dry" in sent.stderr
