"""Keep the file of users that a broker lets in (security.users): add them, change passwords, list them.

A password is asked for, or read from --password-file ('-': standard input); it can't stand on the command
line, where others would see it. What is kept is a verifier, which checks a password and isn't one. A running
broker takes the new file on SIGHUP. A user without a password (--no-password) comes in by a certificate or a
token only.
"""

from __future__ import annotations

import argparse
import getpass
import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.main import UsageError
from broker.cli.terminal import arguments, table
from broker.cli.terminal.printable import printable
from broker.errors import ConflictError, NotFoundError, OperatorError

if TYPE_CHECKING:
    from broker.security.users import ScramVerifier, User
    from broker.security.usersfile import UsersFile

DEFAULT = Path("etc/users")
GENERATED_BYTES = 18
COLUMNS = ("name", "groups", "acts_as", "mechanisms", "iterations")
EXAMPLES = (
    ("sluice users add alice --groups writers,ops --generate --file users", "prints the password it made"),
    ("sluice users passwd alice --generate --file users", "another one"),
    ("sluice users list --file users --json", "who there is, without anything secret"),
    ("sluice users del alice --file users", "alice is let in no more once the broker has reloaded"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    # Else --password would be short for --password-file, and a password the name of a file.
    parser.allow_abbrev = False
    parser.add_argument("action", choices=("add", "passwd", "del", "list"))
    parser.add_argument("name", nargs="?", metavar="NAME", help="the user")
    parser.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        default=Path(os.environ.get("SLUICE_SECURITY_USERS") or DEFAULT),
        help=f"the file of users (default: SLUICE_SECURITY_USERS, else {DEFAULT}); add makes it",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--password-file", metavar="FILE", help="its first line is the password; -: stdin")
    how.add_argument("--generate", action="store_true", help="make a password and print it")
    how.add_argument("--no-password", action="store_true", help="add: one that has none")
    parser.add_argument("--groups", metavar="A,B", help="the groups; with passwd: instead of those there are")
    parser.add_argument("--acts-as", metavar="A,B", help="whose names it may come in by; *: anybody's")
    parser.add_argument(
        "--sha1",
        action="store_true",
        help="keep a verifier of SCRAM-SHA-1 too, for old clients; passwd keeps it",
    )
    parser.add_argument(
        "--iterations", type=arguments.count, metavar="N", help="what a password costs to try, from now on"
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 when the file says what was asked for, 1 when it was refused."""
    if (args.action == "list") == bool(args.name):
        raise UsageError("add, passwd and del need a NAME, list takes none")
    if args.action == "list":
        return _list(args)
    return _ACTIONS[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from broker.security.usersfile import read_users

    shown = [_shown(user) for _, user in sorted(read_users(args.file).users.items())]
    if args.json:
        print(table.as_json(shown))
        return 0
    for row in shown:
        words = [f"{key} {table.word(row[key])}" for key in COLUMNS[1:] if row[key]]
        print(printable(str(row["name"])), *words, sep="  ")
    return 0


def _shown(user: User) -> dict[str, object]:
    return {
        "name": user.name,
        "groups": sorted(user.groups),
        "acts_as": sorted(user.acts_as),
        "mechanisms": list(user.verifiers),
        "iterations": max((kept.iterations for kept in user.verifiers.values()), default=0),
    }


def _add(args: argparse.Namespace) -> int:
    from broker.security.users import User
    from broker.security.usersfile import changing, check_groups, check_name

    name = check_name(args.name)
    if ":" in name:
        # One that is in a file already stays: over AMQP it can come in.
        raise OperatorError(f"{name!r} holds a colon: HTTP Basic ends the user's name there (RFC 7617 §2)")
    groups, others = (check_groups((args.groups or "").split(",")), _names(args.acts_as))
    password = "" if args.no_password else _password(args, name)
    with changing(args.file) as file:
        if name in file.users:
            raise ConflictError(f"there is a user {name!r}; `sluice users passwd` changes the password")
        file.users[name] = User(name, _verifiers(args, file, password), groups, others)
    return _told(args, name, password)


def _passwd(args: argparse.Namespace) -> int:
    from broker.security.usersfile import changing, check_groups, check_name, read_users

    name = check_name(args.name)
    _known(read_users(args.file), name)
    password = "" if args.no_password else _password(args, name)
    with changing(args.file) as file:
        user = _known(file, name)
        args.sha1 = args.sha1 or "SCRAM-SHA-1" in user.verifiers
        user = replace(user, verifiers=_verifiers(args, file, password))
        if args.groups is not None:
            user = replace(user, groups=check_groups(args.groups.split(",")))
        if args.acts_as is not None:
            user = replace(user, acts_as=_names(args.acts_as))
        file.users[name] = user
    return _told(args, name, password)


def _del(args: argparse.Namespace) -> int:
    from broker.security.usersfile import changing, check_name

    name = check_name(args.name)
    if not args.file.exists():
        raise NotFoundError(f"{args.file} is not there")
    with changing(args.file) as file:
        _known(file, name)
        del file.users[name]
    return _told(args, name, "")


_ACTIONS = {"add": _add, "passwd": _passwd, "del": _del}


def _known(file: UsersFile, name: str) -> User:
    if name not in file.users:
        raise NotFoundError(f"there is no user {name!r}")
    return file.users[name]


def _names(text: str | None) -> frozenset[str]:
    from broker.security.usersfile import check_name

    given = [name for name in (text or "").split(",") if name]
    return frozenset(name if name == "*" else check_name(name) for name in given)


def _verifiers(args: argparse.Namespace, file: UsersFile, password: str) -> dict[str, ScramVerifier]:
    from broker.security.users import FEWEST, KEPT, MOST, make_verifier

    if args.iterations is not None:
        if not FEWEST <= args.iterations <= MOST:
            raise OperatorError(f"iterations are {FEWEST} to {MOST}")
        file.iterations = args.iterations
    if not password:
        return {}
    names = (*KEPT, "SCRAM-SHA-1") if args.sha1 else KEPT
    return {name: make_verifier(password, name, file.iterations) for name in names}


def _password(args: argparse.Namespace, name: str) -> str:
    """Made, read, or asked for twice."""
    from broker.security.usersfile import check_password

    if args.generate:
        return secrets.token_urlsafe(GENERATED_BYTES)
    if args.password_file is not None:
        return check_password(arguments.first_line(args.password_file))
    if not sys.stdin.isatty():
        raise UsageError("no terminal to ask for a password on: use --password-file FILE (-: stdin)")
    first = getpass.getpass(f"password of {printable(name)}: ")
    if first != getpass.getpass("again: "):
        raise OperatorError("the two are not the same")
    return check_password(first)


def _told(args: argparse.Namespace, name: str, password: str) -> int:
    done = {"add": "added", "passwd": "changed", "del": "deleted"}[args.action]
    if args.json:
        shown = {done: name, "file": str(args.file)}
        print(table.as_json(shown | ({"password": password} if args.generate else {})))
        return 0
    print(f"{done} {printable(name)} in {printable(str(args.file))}: a running broker takes it on SIGHUP")
    if args.generate:
        print(f"password: {password}")
    return 0
