"""Look after a data directory: check it, show what it holds, back it up, discard what can't be restored.

check and stats read a directory no broker has (--data); stats without --data asks the running broker.
backup copies the running broker's directory, consistently and while it works: TARGET is a name in the
broker's own directory of backups (backup_directory). With --data it copies one that no broker has, and
TARGET is a new directory anywhere. Start a broker on a backup to restore it.
detach makes the directory of a cell's member that of a single broker again, for when the cell's log is
lost: a broker that is started with it alone, or as the first member of a new log, begins with what it holds.
discard removes for good, with its messages, the node or note TARGET that the running broker could not
restore when it started and has set aside (sluice stat -g).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.main import UsageError
from broker.cli.terminal import arguments, ask, table
from broker.cli.terminal.printable import printable
from broker.cli.terminal.progress import ProgressBar

if TYPE_CHECKING:
    from broker.store.check import Report

POLL_S = 0.1
SHOWN = (
    *("storeState", "storeReason", "store_msgs", "store_bytes", "store_limit_bytes"),
    *("temp_bytes", "temp_limit_bytes", "syncs", "sync_seconds", "groups", "written_bytes"),
)
EXAMPLES = (
    ("sluice store stats", "what the running broker has on disk"),
    ("sluice store backup monday", "a copy, while it works"),
    ("sluice store check --data data", "a directory no broker has"),
    ("sluice store detach --data data", "leave a cell whose log is lost, with all that the directory holds"),
    ("sluice store discard orders.old", "remove what was set aside under that name"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument("action", choices=("check", "stats", "backup", "discard", "detach"))
    said = "a backup's name, with --data a new directory; the name of what is to be discarded"
    parser.add_argument("target", nargs="?", metavar="TARGET", help=said)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a data directory no broker has")
    arguments.add_broker(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 where all is well; a fault is told with its file and place, status 1."""
    if (args.action in ("backup", "discard")) != bool(args.target):
        raise UsageError("backup and discard need a TARGET, the others take none")
    if args.action == "discard":
        return _discard(args)
    if args.action in ("check", "detach") and args.data is None:
        raise UsageError(f"{args.action} needs --data DIR")
    if args.action == "detach":
        return _detach(args)
    if args.action == "backup":
        return _backup(args)
    if args.data is None:
        return _ask(args)
    return _read(args)


def _read(args: argparse.Namespace) -> int:
    from broker.store.check import check, stats

    look = check if args.action == "check" else stats
    with ProgressBar(f"reading {args.data}", None) as bar:
        report = look(args.data, lambda done, total: bar.show(done, f"of {total}"))
    print(table.as_json(asdict(report)) if args.json else _told(report))
    return 0


def _told(report: Report) -> str:
    lines = [
        f"{printable(shelf.name)}: {shelf.messages:,} messages,"
        f" {shelf.in_pages:,} of them in {shelf.pages:,} pages"
        for shelf in report.shelves
    ]
    lines.append(
        f"journal {report.journal_bytes:,} B, pages {report.page_bytes_used:,} of {report.page_bytes:,} B,"
        f" directory {report.directory_bytes:,} B, {report.groups:,} groups"
    )
    if report.large_files:
        lines.append(f"{report.large_files:,} large messages' files, {report.large_bytes:,} B")
    if report.log_epoch:
        lines.append(f"a cell's log up to group {report.log_group:,} of epoch {report.log_epoch:,}")
    lines.append("stopped in order" if report.clean else "not stopped in order")
    return "\n".join(lines)


def _ask(args: argparse.Namespace) -> int:
    with ask.connect(args) as management:
        found = ask.entity(management, "READ", "broker", "sluice")
    shown = {name: found[name] for name in SHOWN}
    lines = (f"{name} {printable(str(value))}" for name, value in shown.items())
    print(table.as_json(shown) if args.json else "\n".join(lines))
    return 0


def _discard(args: argparse.Namespace) -> int:
    if args.data is not None:
        raise UsageError("discard asks the running broker: it takes no --data")
    with ask.connect(args) as management:
        messages = ask.operation(management, "discard", name=args.target)["messages"]
    shown = {"discarded": args.target, "messages": messages}
    print(table.as_json(shown) if args.json else f"{printable(args.target)} discarded, {messages:,} messages")
    return 0


def _detach(args: argparse.Namespace) -> int:
    from broker.store.check import detach

    epoch, group = detach(args.data)
    shown = {"detached": str(args.data), "epoch": epoch, "group": group}
    upto = f"it holds the cell up to group {group} of epoch {epoch}"
    text = f"{printable(str(args.data))} is a single broker's: {upto}"
    print(table.as_json(shown) if args.json else text)
    return 0


def _backup(args: argparse.Namespace) -> int:
    if args.data is not None:
        from broker.store.check import copy

        path = args.target
        copy(args.data, Path(path))
    else:
        with ask.connect(args) as management:
            path = str(ask.operation(management, "backup", target=args.target)["path"])
            while not ask.operation(management, "backup-done")["done"]:
                time.sleep(POLL_S)
    print(table.as_json({"backup": path}) if args.json else f"backed up to {printable(path)}")
    return 0
