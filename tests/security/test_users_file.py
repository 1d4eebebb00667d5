"""The users' file: what is refused and where, that it holds no password, and that nothing of it gets lost."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from broker.errors import ConfigError, OperatorError
from broker.security.users import FEWEST, User
from broker.security.usersfile import (
    changing,
    check_groups,
    check_name,
    check_password,
    fault_of,
    load_users,
    read_users,
)
from tests.security.exchanges import PASSWORD, a_user


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def complaints(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_users(path)
    return str(refused.value).replace(str(path), "users").split("\n")


def test_what_is_written_is_read_again(path: Path) -> None:
    with changing(path) as file:
        file.iterations = FEWEST
        for user in (
            a_user("alice", groups=frozenset({"a", "b"})),
            a_user("élan@example.org", acts_as=frozenset({"*"})),
            User("device"),
        ):
            file.users[user.name] = user
    first = read_users(path)
    with changing(path) as file:
        pass
    assert read_users(path) == first
    assert (set(first.users), first.iterations) == ({"alice", "élan@example.org", "device"}, FEWEST)
    assert first.users["alice"].groups == {"a", "b"}
    assert first.users["élan@example.org"].acts_as == {"*"}
    assert first.users["device"].verifiers == {}


def test_the_file_holds_no_password_and_is_its_owners_alone(path: Path) -> None:
    # It is the whole process's, whose other tests have files and brokers of their own.
    mask = os.umask(0)
    try:
        with changing(path) as file:
            file.users["alice"] = a_user("alice")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PASSWORD not in path.read_text()
    assert PASSWORD not in repr(read_users(path))
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_a_change_that_fails_changes_nothing(path: Path) -> None:
    with changing(path) as file:
        file.users["alice"] = User("alice")
    before = path.read_bytes()

    def change() -> None:
        with changing(path) as file:
            del file.users["alice"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        change()
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_changes_at_once_are_all_there(path: Path) -> None:
    def add(number: int) -> None:
        with changing(path) as file:
            file.users[f"u{number}"] = User(f"u{number}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_users(path).users) == {f"u{number}" for number in range(20)}


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    real = written(tmp_path / "real", "alice\n")
    path.symlink_to(real)
    with changing(path) as file:
        file.users["bob"] = User("bob")
    assert path.is_symlink()
    assert set(read_users(real).users) == {"alice", "bob"}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o660, 0o777, 0o601])
def test_a_file_others_get_at_is_refused(path: Path, mode: int) -> None:
    [text] = complaints(written(path, "alice\n", mode))
    assert text == f"users: has mode {mode:04o}, so that others get at it: chmod {mode & 0o700:04o}"


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_our_own_is_taken(path: Path, mode: int) -> None:
    assert "alice" in load_users(written(path, "alice\n", mode))


@pytest.mark.parametrize(
    ("mode", "owner", "fine"),
    [(0o440, 0, True), (0o640, 0, True), (0o660, 0, False), (0o644, 0, False), (0o440, 7, False)],
)
def test_a_secret_of_somebody_elses_may_be_read_by_its_group(mode: int, owner: int, fine: bool) -> None:
    status = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    assert (fault_of(status, 7) == "") == fine


def test_what_is_no_file_is_refused(path: Path) -> None:
    assert complaints(path) == ["users: cannot be read: No such file or directory"]
    path.mkdir()
    assert complaints(path) == ["users: is no regular file"]
    path.rmdir()
    os.mkfifo(path, 0o600)
    assert complaints(path) == ["users: is no regular file"]


def test_everything_wrong_is_told_at_once_and_no_secret_is(path: Path) -> None:
    text = "\n".join(
        [
            "# a comment, and an empty line",
            "",
            "!decoys short",
            "!iterations 5",
            "!iteration 4096",
            "alice",
            "alice",
            "anonymous",
            "$broker",
            "a,b",
            "bob hunter2",
            "carl grups=a",
            "dora groups=a;b",
            "emil SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0$AAAA:AAAA",
            "fred SCRAM-SHA-256$1:hunter2",
        ]
    )
    found = complaints(written(path, text))
    assert [line.partition(" ")[0] for line in found] == [
        f"users:{number}:1:" for number in (3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    ]
    assert "(did you mean '!iterations'?)" in found[2]
    assert "(did you mean 'groups'?)" in found[8]
    assert "hunter2" not in found[-1]


def test_not_utf8(path: Path) -> None:
    path.write_bytes(b"alice\n\xff\n")
    path.chmod(0o600)
    assert complaints(path) == ["users:2:1: not UTF-8"]


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a,b", "!a", "#a", "*", "$broker", "anonymous", "a\0b", "a\u202eb"]
)
def test_names_nobody_can_bear(name: str) -> None:
    with pytest.raises(OperatorError):
        check_name(name)


def test_names_and_passwords_are_prepared() -> None:
    assert check_name("ﬁsh") == "fish"
    assert check_password("ﬁsh\u00a0") == "fish "
    for none in ("", "a\nb", "\u0627a"):
        with pytest.raises(OperatorError) as refused:
            check_password(none)
        assert none == "" or none not in str(refused.value)


def test_groups() -> None:
    assert check_groups(["a", " b ", ""]) == {"a", "b"}
    with pytest.raises(OperatorError):
        check_groups(["a b"])
