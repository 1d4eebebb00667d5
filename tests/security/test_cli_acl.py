"""`sluice acl`: which rule decides, and every rule, from the file or from what the settings name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.cli import main as cli
from broker.cli.verbs.acl import ACTIONS
from broker.security.acl import Action
from broker.security.users import FEWEST, User, make_verifier
from broker.security.usersfile import changing

RULES = """\
rules:
  - deny: [send, purge]
    groups: [interns]
  - allow: all
    addresses: ["${user}.#"]
  - allow: [connect, receive]
    virtual_hosts: [shop]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("acl.yaml").write_text(RULES)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = cli.main(["acl", *words])
    told = capsys.readouterr()
    return status, (told.out + told.err).strip()


def test_the_actions_are_those_of_the_rules() -> None:
    assert list(ACTIONS) == [str(each) for each in Action]


@pytest.mark.parametrize(
    ("words", "status", "wanted"),
    [
        (["alice", "send", "alice.x"], 0, "allowed: acl.yaml:4:5: allow all at ${user}.# for everybody"),
        (["bob", "send", "alice.x"], 1, "denied: no rule matches: denied"),
        (
            ["bob", "send", "bob.x", "--group", "interns", "--group", "b"],
            1,
            "denied: acl.yaml:2:5: deny send, purge for group interns",
        ),
        (["bob", "connect"], 1, "denied: no rule matches: denied"),
        (
            ["bob", "connect", "--virtual-host", "shop"],
            0,
            "allowed: acl.yaml:6:5: allow connect, receive for everybody in shop",
        ),
        (["bob", "receive", "bob.>"], 0, "allowed: acl.yaml:4:5: allow all at ${user}.# for everybody"),
        (["bob", "receive", "*.x"], 1, "denied: no rule matches: denied"),
    ],
)
def test_who_may(capsys: pytest.CaptureFixture[str], words: list[str], status: int, wanted: str) -> None:
    assert said(capsys, "test", *words, "--file", "acl.yaml") == (status, wanted)


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = said(capsys, "test", "bob", "send", "x", "--group", "g", "--json", "--file", "acl.yaml")
    assert status == 1
    assert json.loads(text) == {
        "allowed": False,
        "rule": "no rule matches: denied",
        "user": "bob",
        "groups": ["g"],
        "action": "send",
        "virtual_host": "/",
        "address": "x",
    }
    rows: list[dict[str, Any]] = json.loads(said(capsys, "list", "--json", "--file", "acl.yaml")[1])
    assert [row["place"] for row in rows] == ["acl.yaml:2:5", "acl.yaml:4:5", "acl.yaml:6:5"]
    assert rows[1]["actions"] == list(ACTIONS)


@pytest.mark.parametrize(
    "words", [["bob", "connect", "x"], ["bob", "send"], ["bob", "sned", "x"], ["bob"], []]
)
def test_what_makes_no_sense_is_usage(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert said(capsys, "test", *words, "--file", "acl.yaml")[0] == 2


def test_the_settings_name_the_file_and_the_users(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with changing(Path("users")) as found:
        kept = {"SCRAM-SHA-256": make_verifier("x", "SCRAM-SHA-256", FEWEST)}
        found.users["bob"] = User("bob", kept, frozenset({"interns"}))
    Path("broker.yaml").write_text("security: {acl: acl.yaml, users: users}\n")
    told = "denied: acl.yaml:2:5: deny send, purge for group interns"
    assert said(capsys, "test", "bob", "send", "bob.x", "--config", "broker.yaml") == (1, told)
    assert said(capsys, "test", "eve", "send", "eve.x", "--config", "broker.yaml")[0] == 0
    monkeypatch.setenv("SLUICE_CONFIG", "broker.yaml")
    assert said(capsys, "test", "bob", "send", "bob.x") == (1, told)


def test_without_a_file_everything_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "list") == (0, "no rules: everything is allowed")
    assert said(capsys, "test", "bob", "delete", "x")[0] == 0


def test_a_fault_is_told_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("acl.yaml").write_text("rules:\n  - allow: sned\n")
    status, told = said(capsys, "list", "--file", "acl.yaml")
    assert status == 1
    assert told.startswith("sluice acl: acl.yaml:2:12: allow: expected 'connect', ")
    assert cli.main(["serve", "--check", "--config", "none.yaml"]) == 1
    Path("broker.yaml").write_text("security: {acl: acl.yaml}\n")
    assert cli.main(["serve", "--check", "--config", "broker.yaml"]) == 1
    assert "acl.yaml:2:12: allow: expected" in capsys.readouterr().err


def test_names_command_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("acl.yaml").write_text('rules:\n  - allow: send\n    users: ["\\e[31mred"]\n')
    assert "\x1b" not in said(capsys, "list", "--file", "acl.yaml")[1]
    assert "\x1b" not in said(capsys, "test", "\x1b[31mred", "send", "x", "--file", "acl.yaml")[1]


def test_the_shipped_example_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(Path(__file__).parents[2] / "etc/acl.yaml")
    for words, status in (
        (["alice", "purge", "alice.x"], 0),
        (["alice", "send", "bob.x"], 1),
        (["olga", "manage-read", "$broker", "--group", "watchers"], 0),
        (["olga", "browse", "orders", "--group", "watchers"], 1),
        (["otto", "manage-write", "$broker", "--group", "operators"], 0),
        (["alice", "create", "$temporary"], 0),
    ):
        assert said(capsys, "test", *words, "--file", file)[0] == status
