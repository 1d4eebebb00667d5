"""Operating a broker from the command line: closing, trying out, completing, the manual's own examples."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from broker.cli import main as cli
from broker.cli.main import VERBS, verb_of
from broker.cli.terminal.completion import SCRIPTS
from tests.needs import program
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.lines import Lines, lines

__all__ = ["lines"]

pytestmark = pytest.mark.wire

# They go on until they are stopped, or need what isn't here; that they parse is tested elsewhere.
NOT_RUN = {
    *("sluice serve", "sluice serve --listen amqp://127.0.0.1:5673 --data /var/tmp/sluice", "sluice top"),
    "sluice serve --cells auto",
    *("sluice top --by stopped", "sluice top --json --interval 10s", "sluice stat -f --watch 1s"),
    *("sluice events --follow --json", "sluice bench load --senders 4 --receivers 4 --rate 2000 --json"),
    *("sluice close c12", "sluice close c12.3 c12.4", "sluice store backup monday"),
    *("sluice store discard orders.old", "sluice store detach --data data"),
    "sluice delayed orders --cancel 4711",
    *("sluice groups orders --reset customer-7", "sluice readers ticks --forget billing"),
    *("sluice store check --data data", "sluice advise data --node orders"),
    *("sluice trace c12", "sluice trace c12 --frames 50 --for 5m", "sluice trace c12 --stop"),
    *('eval "$(sluice completion bash)"', "sluice completion fish | source"),
}

GROUPED = ("--argument", "message_groups=sticky")
STREAM = ("--argument", "queue_type=stream")

# After each of their examples the queues are filled again.
TAKING = ("receive", "move", "purge", "bench")


def test_a_connection_is_closed_and_a_link_detached(broker: RunningBroker, lines: Lines) -> None:
    one, other = (BlockingConnection(broker.url, timeout=10) for _ in range(2))
    try:
        kept, gone = one.create_sender("orders", name="kept"), one.create_sender("orders", name="gone")
        other.create_receiver("orders", name="theirs")
        links = {row["link"]: row for row in lines.parsed("stat", "-f")["senders"]}
        assert lines("close", links["gone"]["identity"]) == (f"detached link {links['gone']['identity']}\n")
        with pytest.raises(LinkDetached, match="operator"):
            gone.send(Message(body="x"))
        kept.send(Message(body="x"))
        theirs = lines.parsed("stat", "-u")["receivers"][0]["identity"].partition(".")[0]
        assert lines.parsed("close", theirs) == [{"id": theirs, "kind": "connection"}]
        wait_until(lambda: not lines.parsed("stat", "-u")["receivers"], 10, "the receiver to be gone")
        assert "no connection 'c999'" in lines("close", "c999", status=1)
        assert "no link 'c1.999'" in lines("close", "c1.999", status=1)
    finally:
        one.close()


def test_what_would_be_is_said_and_nothing_is_done(lines: Lines, tmp_path: Path) -> None:
    lines("config", "add", "queue", "orders", "--max-queue-count", "100")
    lines("send", "orders", "--count", "10")
    told = lines("config", "set", "queue", "orders", "--flow-stop-count", "5", "--dry-run")
    assert told.startswith("orders: open now, stopped then; 10 messages there\n")
    assert "flow_stop_count: 80 -> 5" in told
    both = ("--flow-stop-count", "5", "--flow-resume-count", "9")
    assert "flow_resume_count 9 is more than" in lines(
        "config", "set", "queue", "orders", *both, "--dry-run", status=1
    )
    file = tmp_path / "orders.yaml"
    file.write_text("policies:\n  - match: orders\n    consumer_flow_limit: 7\n")
    assert lines("config", "apply", str(file), "--dry-run") == "would change: orders\n"
    settings = {row["name"]: row["value"] for row in lines.parsed("explain", "orders")["settings"]}
    assert (settings["flow_stop_count"], settings["consumer_flow_limit"]) == (80, 1000)
    file.write_text("policies:\n  - match: orders\n    flow_stop_count: 500\n")
    refused = lines("config", "apply", str(file), "--dry-run", status=1)
    assert "flow_stop_count 500" in refused


def test_what_there_is_is_listed(lines: Lines) -> None:
    lines("config", "add", "topic", "news")
    lines("config", "bind", "news", "orders")
    assert lines.parsed("config", "bindings") == [{"source": "news", "target": "orders"}]
    lines("producers", "stop", "orders.>")
    assert lines("producers", "list") == "orders.>\n"
    assert lines.parsed("producers", "list") == ["orders.>"]
    assert lines.parsed("config", "subscriptions") == []
    [session] = lines.parsed("stat", "-s")["sessions"]
    assert session["consumers"] == 1
    rows = lines.parsed("stat", "-q", "-S", "queue", "-I", "-L", "1")["queues"]
    assert [row["name"] for row in rows] == ["news"]
    assert "no column 'nonsense'" in lines("stat", "-S", "nonsense", status=2)


# --- completion in the shells themselves


def completed(shell: str, script: str, broker: RunningBroker, tmp_path: Path) -> list[str]:
    """What a shell finds, with `sluice` on its path."""
    shell = program(shell)
    sluice = tmp_path / "sluice"
    sluice.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker.cli.main "$@"\n')
    sluice.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLUICE_BROKER": broker.url}
    env["SLUICE_COMPLETION_TIMEOUT"] = "30s"
    done = subprocess.run(
        [shell, "-c", script], capture_output=True, text=True, timeout=60, env=env, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


BASH = """
eval "$(sluice completion bash)"
complete -p sluice
COMP_LINE={line} COMP_POINT=${{#COMP_LINE}} COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_sluice
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_bash_completes(broker: RunningBroker, lines: Lines, tmp_path: Path) -> None:
    for name in ("orders", "orders eu", "stock"):
        lines("config", "add", "queue", name)

    def found(line: str, words: str) -> list[str]:
        script = BASH.format(line=shlex.quote(line), words=words)
        defined, *words_found = completed("bash", script, broker, tmp_path)
        assert defined == "complete -F _sluice sluice"
        return words_found

    assert found("sluice st", "sluice st") == ["stat", "store"]
    assert found("sluice why or", "sluice why or") == ["orders", "orders\\ eu"]
    words = "sluice config add queue x --limit-policy = r"
    assert found("sluice config add queue x --limit-policy=r", words) == ["reject", "ring"]


def test_fish_completes(broker: RunningBroker, lines: Lines, tmp_path: Path) -> None:
    lines("config", "add", "queue", "orders")
    script = "sluice completion fish | source; complete -C 'sluice stat --wa'; complete -C 'sluice why o'"
    flag, name = completed("fish", script, broker, tmp_path)
    assert (flag.partition("\t")[0], name) == ("--watch", "orders")


def test_zsh_takes_its_script(broker: RunningBroker, tmp_path: Path) -> None:
    script = 'autoload -U compinit; compinit -u -D; eval "$(sluice completion zsh)"; print $_comps[sluice]'
    assert completed("zsh", script, broker, tmp_path) == ["_sluice"]


def test_scripts_need_no_broker() -> None:
    assert [cli.main(["completion", shell]) for shell in SCRIPTS] == [0, 0, 0]


# --- the manual


def test_the_manuals_examples_run(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the manual's order, with the files they name; nothing is refused, and --json is JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLUICE_BROKER", broker.url)
    (tmp_path / "policies.yaml").write_text("policies:\n  - match: 'stock.>'\n    max_count: 5\n")
    (tmp_path / "flights.csv").write_text("carrier,dest\nUA,IAH\nAA,MIA\n")
    (tmp_path / "etc").mkdir()
    shutil.copy(Path(__file__).parents[2] / "etc/acl.yaml", tmp_path / "etc")
    ran = 0
    for verb in VERBS:
        for number, (command, _) in enumerate(verb_of(verb)[0].EXAMPLES):
            # tests/cluster/test_faces.py asks a real cell.
            if command in NOT_RUN or verb == "cluster":
                continue
            if number == 0 or verb in TAKING:
                ready(verb)
            if (verb, number) == ("groups", 0):
                assert cli.main(["config", "set", "queue", "orders", *GROUPED]) == 0
            if (verb, number) == ("readers", 0):
                assert cli.main(["config", "add", "queue", "ticks", *STREAM]) == 0
            capsys.readouterr()
            words = shlex.split(command)[1:]
            if verb == "bench" and "--seconds" in words:
                words += ["--warmup", "100ms", "--seconds", "500ms"]
            assert cli.main(words) == 0, (command, capsys.readouterr())
            out = capsys.readouterr().out
            if "--json" in words and verb not in ("receive", "browse", "events"):
                json.loads(out)
            ran += 1
    assert ran > 40


def ready(verb: str) -> None:
    """What the examples of a verb presuppose."""
    cli.main(["producers", "start", "--all"])
    if verb not in ("serve", "config"):
        for queue in ("orders", "orders.dead"):
            cli.main(["config", "add", "queue", queue])
            if verb == "bench":
                cli.main(["purge", queue])
            else:
                cli.main(["send", queue, "--count", "10"])
    if verb == "bench":
        cli.main(
            ["bench", "orders", "--receivers", "0", "--count", "1000", "--max-backlog", "0", "--warmup", "0s"]
        )
