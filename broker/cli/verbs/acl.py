"""Say what the access rules let somebody do, and by which line; needs the file, not the broker.

sluice acl test USER ACTION [ADDRESS]  whether a user may, and the rule that decides
sluice acl list                        every rule, in the order in which they are asked

The file is --file, else what `security.acl` of the broker's settings names. A user's groups are those of
the users' file, where the settings name one, and each --group. Exit status 1 where it is denied.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.terminal import arguments, table
from broker.cli.terminal.printable import printable
from broker.cli.terminal.table import text

if TYPE_CHECKING:
    from broker.security.acl import Acl
    from broker.security.users import Users

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

ACTIONS = (
    *("connect", "create", "delete", "send", "receive", "browse", "purge", "move"),
    *("manage-read", "manage-write", "backup"),
)
COLUMNS = (
    text("rule", "rule"),
    text("actions", "actions"),
    text("addresses", "addresses"),
    text("users", "users"),
    text("groups", "groups"),
    text("virtual hosts", "virtual_hosts"),
    text("at", "place"),
)
EXAMPLES = (
    ("sluice acl test alice send orders.eu", "whether she may, and by which rule"),
    ("sluice acl test bob receive 'news.>' --group readers", "as a member of a group; of a pattern"),
    ("sluice acl test alice connect --virtual-host shop", "to a virtual host"),
    ("sluice acl list --file etc/acl.yaml", "every rule"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command each; --json may stand before or after it."""
    arguments.add_json(parser)
    verbs = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    testing = _verb(verbs, "test", test, "whether a user may do something, and which rule decides")
    testing.add_argument("user", metavar="USER", help="'anonymous' is who didn't say who it is")
    testing.add_argument("action", metavar="ACTION", choices=ACTIONS, help=", ".join(ACTIONS))
    testing.add_argument(
        "address", metavar="ADDRESS", nargs="?", default="", help="a node's name, or a pattern of names"
    )
    testing.add_argument(
        "--group", action="append", default=[], metavar="G", help="a group the user is in; may repeat"
    )
    testing.add_argument(
        "--virtual-host", default="", metavar="V", help="the virtual host (default: the common one)"
    )
    _verb(verbs, "list", show, "every rule, in the order in which they are asked")


def run(args: argparse.Namespace) -> int:
    """Runs the sub-command."""
    verb: Callable[[argparse.Namespace], int] = args.verb
    return verb(args)


def test(args: argparse.Namespace) -> int:
    """0 if it is allowed, 1 if it is denied."""
    from broker.cli.main import UsageError
    from broker.security.acl import COMMON, Action
    from broker.security.identity import Identity

    action = Action(args.action)
    if (action is Action.CONNECT) == bool(args.address):
        raise UsageError("connect takes no ADDRESS" if args.address else f"{action} needs an ADDRESS")
    host = "" if args.virtual_host == COMMON else args.virtual_host
    acl, users = _files(args)
    identity = Identity(args.user, users.groups(args.user) | frozenset(args.group))
    decision = acl.decide(identity, action, host, args.address)
    word = "allowed" if decision.allowed else "denied"
    if args.json:
        asked = {"user": args.user, "groups": sorted(identity.groups), "action": args.action}
        where = {"virtual_host": host or COMMON, "address": args.address}
        print(table.as_json({"allowed": decision.allowed, "rule": decision.rule, **asked, **where}))
    else:
        print(f"{word}: {printable(decision.rule)}")
    return 0 if decision.allowed else 1


def show(args: argparse.Namespace) -> int:
    """All rules."""
    from broker.security.acl import NO_RULES

    rows: list[dict[str, object]] = [
        {
            "rule": "allow" if rule.allows else "deny",
            "actions": [str(each) for each in rule.actions],
            "addresses": [each.text for each in rule.addresses],
            "users": sorted(rule.users),
            "groups": sorted(rule.groups),
            "virtual_hosts": sorted(rule.hosts),
            "place": rule.place,
        }
        for rule in _files(args)[0].rules
    ]
    if args.json:
        print(table.as_json(rows))
    elif rows:
        print(table.plain(COLUMNS, [_worded(row) for row in rows]))
    else:
        print(NO_RULES)
    return 0


def _worded(row: dict[str, object]) -> dict[str, object]:
    """Lists in words; where nothing is said, a rule is for all."""
    every = row["actions"] == list(ACTIONS)
    words = {key: ", ".join(each) or "all" for key, each in row.items() if isinstance(each, list)}
    return row | words | ({"actions": "all"} if every else {})


def _verb(
    verbs: Verbs, name: str, verb: Callable[[argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=what)
    parser.add_argument("--file", type=Path, metavar="F", help="the file of rules")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the broker's settings (default: as `sluice serve`)"
    )
    # Suppressed: a default here would undo what stood before the sub-command.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(verb=verb)
    return parser


def _files(args: argparse.Namespace) -> tuple[Acl, Users]:
    """The rules, and the users, of whom there are none where --file is given."""
    from broker.security.rules import load_acl
    from broker.security.users import Users
    from broker.security.usersfile import load_users

    if args.file is not None:
        return load_acl(args.file), Users()
    from broker.cli.verbs.serve import DEFAULT_CONFIG
    from broker.config.broker import load_settings

    config = args.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    security = load_settings(config, os.environ, {}).security
    return load_acl(security.acl), Users() if security.users is None else load_users(security.users)
