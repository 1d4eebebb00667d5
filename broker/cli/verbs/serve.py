"""Run the broker, or only check its settings."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

DEFAULT_CONFIG = Path("etc/broker.yaml")
EXAMPLES = (
    ("sluice serve", "with etc/broker.yaml, if it is there, and its policies"),
    ("sluice serve --check", "only say what is wrong with settings and policies"),
    ("sluice serve --listen amqp://127.0.0.1:5673 --data /var/tmp/sluice", "a second broker"),
    ("sluice serve --cells auto", "one cell for each core, behind one port"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's flags; they stand above the environment (SLUICE_…), and that above the file."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_CONFIG}, if it is there)"
    )
    parser.add_argument(
        "--policies", action="append", metavar="PATH", help="a policy file or a folder of them; may repeat"
    )
    parser.add_argument("--listen", action="append", metavar="URL", help="amqp://host:port; may repeat")
    parser.add_argument("--http", metavar="HOST:PORT", help="metrics and health, e.g. 127.0.0.1:8672")
    parser.add_argument("--data", metavar="DIR", help="data directory")
    parser.add_argument(
        "--cells",
        metavar="N",
        help="broker processes behind one port; auto: one a core",
    )
    for budget, what in (
        ("memory", "message bytes in memory"),
        ("store", "durable messages on disk"),
        ("temp", "messages paged out to disk"),
    ):
        parser.add_argument(f"--{budget}-limit", metavar="SIZE", help=f"most {what}, e.g. 512MB; 0: no limit")
    for threshold, default in (("stop", 80), ("resume", 70)):
        parser.add_argument(
            f"--default-flow-{threshold}-threshold",
            metavar="PERCENT",
            help=f"where producers {threshold}, of a queue's limit, unless the queue says so ({default})",
        )
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    parser.add_argument("--log-format", metavar="FORMAT", help="text or json")
    parser.add_argument(
        "--check", action="store_true", help="check settings and policies, say all that is wrong, and leave"
    )


def run(args: argparse.Namespace) -> int:
    """0 after an orderly stop or a clean check, 1 when something was refused."""
    from broker.config.broker import Settings, load_settings
    from broker.config.policy_files import load_policies
    from broker.errors import OperatorError

    def load() -> Settings:
        return load_settings(_config(args), os.environ, _flags(args))

    try:
        settings = load()
        if args.check:
            from broker.server.cells.layout import cells_of
            from broker.server.server import check

            if cells_of(settings) > 1:
                from broker.server.cells.supervisor import check_settings

                check_settings(settings, cells_of(settings))
            load_policies(settings.policies)
            for text in check(settings):
                print(f"warning: {text}", file=sys.stderr)
            print("settings and policies are in order")
            return 0
        from broker.manage.loglevels import LogLevels
        from broker.server.cells.place import CellPlace
        from broker.server.logging.output import begin

        place = CellPlace.of(os.environ)
        number = None if place is None else place.number
        output = begin(settings.log_format, settings.log_lines_per_peer, number)
        LogLevels().configure(settings.log_level, settings.log_levels)
        if place is not None:
            from broker.server.cells.cell import serve_cell

            return serve_cell(settings, load, output, place)
        from broker.server.cells.layout import CellsDirectory, cells_in, cells_of

        cells = running = cells_of(settings)
        if cells == 1 and cells_in(settings.data):
            # Those of several cells that go run on until they have given their queues away.
            directory = CellsDirectory(settings.data, 1)
            running = directory.cells
            directory.close()
        if running > 1:
            from broker.server.cells.supervisor import Supervisor

            return Supervisor(settings, cells, _words(args), output, load).run()
        if settings.cluster.is_configured:
            from broker.server.member import serve_member

            serve_member(settings, load, output)
        else:
            from broker.server.server import serve

            serve(settings, load, output)
    except OperatorError as fault:
        from broker.cli.terminal.printable import printable_lines

        print(printable_lines(str(fault)), file=sys.stderr)
        return 1
    return 0


def _words(args: argparse.Namespace) -> list[str]:
    """Return a command that starts a process with the same flags."""
    words = [sys.executable, "-m", "broker.cli.main", "serve"]
    config = _config(args)
    if config is not None:
        words += ["--config", str(config)]
    for name, value in _flags(args).items():
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", str(each)]
    return words


def _config(args: argparse.Namespace) -> Path | None:
    if args.config is not None:
        return Path(args.config)
    return DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None


def _flags(args: argparse.Namespace) -> dict[str, object]:
    given = {
        "policies": args.policies,
        "listen": args.listen,
        "http": args.http,
        "data": args.data,
        "cells": args.cells,
        "log_level": args.log_level,
        "log_format": args.log_format,
        "memory_limit": args.memory_limit,
        "store_limit": args.store_limit,
        "temp_limit": args.temp_limit,
        "default_flow_stop_threshold": args.default_flow_stop_threshold,
        "default_flow_resume_threshold": args.default_flow_resume_threshold,
    }
    return {name: value for name, value in given.items() if value is not None}
