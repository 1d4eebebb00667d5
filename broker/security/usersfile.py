"""The users' file: one user a line, read with the place of every fault and written as a whole.

    !decoys BASE64          the secret that unknown users' decoys are made with
    !iterations 65536       what new verifiers get
    alice groups=writers,ops acts_as=bob SCRAM-SHA-256$65536:SALT$STORED:SERVER SCRAM-SHA-512$...

A verifier is written as PostgreSQL writes one. Nobody but its owner may read the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker.errors import ConfigError, OperatorError, Problem, did_you_mean
from broker.security.users import (
    FEWEST,
    HASHES,
    ITERATIONS,
    LONGEST_NAME,
    LONGEST_PASSWORD,
    MOST,
    ScramVerifier,
    User,
    Users,
    is_name,
    prepared,
)

LARGEST_BYTES = 64 << 20
_VERIFIER = re.compile(r"([A-Z0-9-]+)\$([0-9]{1,8}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")
_GROUP = re.compile(r"[A-Za-z0-9_.@-]{1,100}")
_HEADS = ("!decoys", "!iterations")
_KEYS = ("groups", "acts_as")
_INTRODUCTION = "# Users of a broker: verifiers, no passwords. `sluice users` writes this file."


@dataclass(slots=True)
class UsersFile:
    """What the file holds."""

    users: dict[str, User] = field(default_factory=dict)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    iterations: int = ITERATIONS

    def as_users(self) -> Users:
        """For whoever asks who somebody is."""
        return Users(self.users, self.secret, self.iterations)


def load_users(path: Path) -> Users:
    """The users of a file. ConfigError with all that is wrong with it, its mode included."""
    return read_users(path).as_users()


def read_users(path: Path) -> UsersFile:
    """The file as it stands; ConfigError with all that is wrong."""
    problems: list[Problem] = []
    raw = _read(path, problems)
    found = UsersFile()
    for number, line in enumerate(raw.split("\n"), 1):
        words = [] if line.startswith("#") else line.split()
        if not words:
            continue
        try:
            _take(words, found)
        except ValueError as fault:
            problems.append(Problem(str(path), number, 1, str(fault)))
    if problems:
        raise ConfigError(tuple(problems))
    return found


@contextmanager
def changing(path: Path) -> Iterator[UsersFile]:
    """The file's content, to be changed: written when the block ends, unless it raises.

    Nobody else changes it meanwhile. What isn't there yet is made.
    """
    with _locked(path.parent):
        found = read_users(path) if path.exists() else UsersFile()
        yield found
        _write(path, found)


def check_name(name: str) -> str:
    """The name as it is kept; OperatorError if no user can bear it."""
    kept = prepared(name)
    if kept == "anonymous":
        raise OperatorError("'anonymous' is who has not said who it is; it can't be a user's name")
    if not is_name(kept) or "," in kept or any(letter.isspace() for letter in kept):
        raise OperatorError(
            f"{name[:50]!r} can't be a user's name: 1 to {LONGEST_NAME} printable characters without space or"
            " comma, the first none of ! # * $"
        )
    return kept


def check_password(password: str) -> str:
    """The password as it is used; OperatorError, without it, if it is none."""
    kept = prepared(password)
    if not kept or len(kept.encode()) > LONGEST_PASSWORD:
        raise OperatorError(
            f"the password is empty, longer than {LONGEST_PASSWORD} bytes or has characters none may have"
        )
    return kept


def check_groups(names: Iterable[str]) -> frozenset[str]:
    """Groups' names; OperatorError if one is none."""
    found = frozenset(name.strip() for name in names if name.strip())
    for name in sorted(found):
        if not _GROUP.fullmatch(name):
            raise OperatorError(f"{name!r} is no name of a group: letters, digits and _ . @ - only")
    return found


# --- reading


def _read(path: Path, problems: list[Problem]) -> str:
    """The text of a file only its owner can read; the check and the reading are of the same file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        problems.append(Problem(str(path), 0, 0, f"cannot be read: {error.strerror}"))
        return ""
    fault = fault_of(os.fstat(descriptor), os.geteuid())
    if fault:
        os.close(descriptor)
        problems.append(Problem(str(path), 0, 0, fault))
        return ""
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(LARGEST_BYTES + 1)
    if len(raw) > LARGEST_BYTES:
        problems.append(Problem(str(path), 0, 0, f"larger than {LARGEST_BYTES} bytes"))
        return ""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        problems.append(Problem(str(path), raw.count(b"\n", 0, error.start) + 1, 1, "not UTF-8"))
        return ""


def fault_of(status: os.stat_result, uid: int) -> str:
    """Why a file of secrets isn't one; empty if it is.

    One of our own nobody else may read. One of somebody else's, such as a cluster's secret that is ours to
    read by its group, nobody may read beside that group, nor may the group write it.
    """
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file"
    mode = stat.S_IMODE(status.st_mode)
    forbidden = 0o077 if status.st_uid == uid else 0o027
    if mode & forbidden:
        return f"has mode {mode:04o}, so that others get at it: chmod {mode & ~forbidden & 0o700:04o}"
    return ""


def _take(words: list[str], found: UsersFile) -> None:
    head, *rest = words
    if head in _HEADS:
        if len(rest) != 1:
            raise ValueError(f"{head} takes one value")
        if head == "!decoys":
            found.secret = _decoded(rest[0], 16)
        else:
            found.iterations = _iterations(rest[0])
        return
    if head.startswith("!"):
        raise ValueError(f"unknown word {head!r}{did_you_mean(head, _HEADS)}")
    if head in found.users:
        raise ValueError(f"a second line for {head!r}")
    found.users[head] = _user(head, rest)


def _user(name: str, words: list[str]) -> User:
    try:
        if check_name(name) != name:
            raise ValueError(f"{name!r} isn't written as it is compared: {prepared(name)!r}")
        verifiers: dict[str, ScramVerifier] = {}
        lists: dict[str, frozenset[str]] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if "$" in word:
                mechanism, verifier = _verifier(word)
                verifiers[mechanism] = verifier
            elif equals and key in _KEYS:
                names = frozenset(filter(None, value.split(",")))
                lists[key] = check_groups(names) if key == "groups" else names
            else:
                # Shown only where it was meant as one of ours: it may be a password somebody wrote by hand.
                hint = did_you_mean(key, _KEYS) if equals else ""
                shown = f"unknown word {key!r}{hint}" if hint else "a word that is none"
                raise ValueError(f"{shown}: expected groups=…, acts_as=… or a verifier")
    except OperatorError as fault:
        raise ValueError(str(fault)) from None
    return User(name, verifiers, lists.get("groups", frozenset()), lists.get("acts_as", frozenset()))


def _verifier(word: str) -> tuple[str, ScramVerifier]:
    parts = _VERIFIER.fullmatch(word)
    if parts is None or parts[1] not in HASHES:
        # What stands there may be a password somebody wrote by hand.
        raise ValueError("a verifier that is none: let `sluice users passwd` write it")
    size = hashlib.new(HASHES[parts[1]]).digest_size
    salt, stored, server = _decoded(parts[3], 12), _decoded(parts[4], size), _decoded(parts[5], size)
    return parts[1], ScramVerifier(salt, _iterations(parts[2]), stored, server)


def _iterations(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not FEWEST <= number <= MOST:
        raise ValueError(f"iterations are {FEWEST} to {MOST}")
    return number


def _decoded(text: str, fewest: int) -> bytes:
    try:
        found = b64decode(text, validate=True)
    except ValueError:
        raise ValueError("no base64") from None
    if len(found) < fewest:
        raise ValueError(f"shorter than {fewest} bytes")
    return found


# --- writing


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise OperatorError(f"{folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: UsersFile) -> None:
    """Put a whole new file in the old one's place; whoever owned that one owns the new one."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            _keep_owner(descriptor, target)
            file.write(_text(content))
            file.flush()
            os.fsync(descriptor)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OperatorError(f"{path}: cannot be written: {error.strerror}") from error


def _keep_owner(descriptor: int, target: Path) -> None:
    if target.exists():
        old, new = target.stat(), os.fstat(descriptor)
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.fchown(descriptor, old.st_uid, old.st_gid)


def _text(content: UsersFile) -> str:
    lines = [_INTRODUCTION, f"!decoys {_shown(content.secret)}", f"!iterations {content.iterations}"]
    lines += [_line(user) for _, user in sorted(content.users.items())]
    return "\n".join(lines) + "\n"


def _line(user: User) -> str:
    words = [user.name]
    lists: Mapping[str, frozenset[str]] = {"groups": user.groups, "acts_as": user.acts_as}
    words += [f"{key}={','.join(sorted(names))}" for key, names in lists.items() if names]
    for mechanism, kept in user.verifiers.items():
        keys = f"{_shown(kept.stored_key)}:{_shown(kept.server_key)}"
        words.append(f"{mechanism}${kept.iterations}:{_shown(kept.salt)}${keys}")
    return " ".join(words)


def _shown(value: bytes) -> str:
    return b64encode(value).decode()
