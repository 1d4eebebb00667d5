"""`sluice users`: what each action does to the file, what it prints, and that no password is an argument."""

from __future__ import annotations

import io
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli import main as cli
from broker.security.usersfile import load_users, read_users

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture
def run(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("add", "alice", stdin="secret")``: the status, what it printed and what it complained."""

    def ran(*words: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = cli.main(["users", *words, "--file", str(path)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return ran


FAST = ("--iterations", "4096")
STDIN = ("--password-file", "-")


def test_add_list_passwd_del(run: Run, path: Path) -> None:
    assert run("add", "alice", "--groups", "b,a", *STDIN, *FAST, stdin="first\n")[0] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_users(path).verify("alice", "first") is not None
    out = run("list", "--json")[1]
    assert json.loads(out) == [
        {
            "name": "alice",
            "groups": ["a", "b"],
            "acts_as": [],
            "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
            "iterations": 4096,
        }
    ]
    assert run("passwd", "alice", *STDIN, stdin="second\n")[0] == 0
    users = load_users(path)
    assert users.verify("alice", "first") is None
    assert users.verify("alice", "second") is not None
    assert users.groups("alice") == {"a", "b"}
    assert run("passwd", "alice", "--groups", "c", "--acts-as", "bob,*", *STDIN, stdin="x")[0] == 0
    assert read_users(path).users["alice"].groups == {"c"}
    assert read_users(path).users["alice"].acts_as == {"bob", "*"}
    assert run("del", "alice")[0] == 0
    assert run("list", "--json")[1] == "[]\n"


def test_one_is_made(run: Run, path: Path) -> None:
    status, out, _ = run("add", "alice", "--generate", "--json", *FAST)
    assert status == 0
    password = json.loads(out)["password"]
    assert len(password) >= 24
    assert load_users(path).verify("alice", password) is not None
    _, again, _ = run("passwd", "alice", "--generate", "--json")
    assert json.loads(again)["password"] != password


def test_without_a_password_and_with_old_clients(run: Run, path: Path) -> None:
    run("add", "device", "--no-password", "--groups", "things")
    assert read_users(path).users["device"].verifiers == {}
    run("add", "old", "--sha1", *STDIN, *FAST, stdin="x")
    assert "SCRAM-SHA-1" in read_users(path).users["old"].verifiers
    run("passwd", "old", *STDIN, stdin="y")
    assert "SCRAM-SHA-1" in read_users(path).users["old"].verifiers


@pytest.mark.parametrize(
    ("words", "stdin", "status", "text"),
    [
        (("add",), "", 2, "need a NAME"),
        (("list", "alice"), "", 2, "list takes none"),
        (("add", "alice"), "secret\n", 2, "no terminal to ask for a password on"),
        (("add", "there", *STDIN), "x", 1, "there is a user 'there'"),
        (("add", "a b", *STDIN), "x", 1, "can't be a user's name"),
        (("add", "a:b", *STDIN), "x", 1, "'a:b' holds a colon: HTTP Basic ends the user's name there"),
        (("add", "anonymous", *STDIN), "x", 1, "who has not said who it is"),
        (("add", "bob", *STDIN), "\n", 1, "the password is empty"),
        (("add", "bob", *STDIN, "--groups", "a b"), "x", 1, "no name of a group"),
        (("add", "bob", *STDIN, "--iterations", "5"), "x", 1, "iterations are 4096"),
        (("add", "bob", "--password-file", "/none"), "", 1, "cannot be read"),
        (("passwd", "nobody", *STDIN), "x", 1, "there is no user 'nobody'"),
        (("del", "nobody"), "", 1, "there is no user 'nobody'"),
        (("add", "bob", "--password", "hunter2"), "", 2, "unrecognized arguments"),
    ],
)
def test_what_is_refused(
    run: Run, path: Path, words: tuple[str, ...], stdin: str, status: int, text: str
) -> None:
    run("add", "there", "--no-password")
    before = path.read_bytes()
    came, _, err = run(*words, stdin=stdin)
    assert came == status
    assert text in err
    assert path.read_bytes() == before


def test_a_file_of_others_is_not_touched(run: Run, path: Path) -> None:
    run("add", "alice", "--no-password")
    path.chmod(0o644)
    status, _, err = run("add", "bob", "--no-password")
    assert (status, "has mode 0644" in err) == (1, True)
    path.unlink()
    assert run("del", "alice")[0] == 1
    assert run("list")[0] == 1
