"""CLI: one verb a file; this one finds the verb's file and turns errors into an exit status.

A verb's module offers ``add_arguments(parser)``, ``run(args) -> int`` and ``EXAMPLES`` (a command and what it
is for), and is imported only when its verb is used, so that help costs nothing. Exit status: 0 done,
1 refused (the reason on stderr), 2 usage.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from types import ModuleType

VERBS: dict[str, tuple[str, str]] = {
    "serve": ("broker.cli.verbs.serve", "run the broker"),
    "config": ("broker.cli.verbs.config", "show and change queues, topics, bindings and policies"),
    "stat": ("broker.cli.verbs.stat", "show queues, connections, links and flow"),
    "top": ("broker.cli.verbs.top", "watch the busiest, deepest or stopped nodes, full-screen"),
    "explain": ("broker.cli.verbs.explain", "show an address's effective settings and where each came from"),
    "producers": ("broker.cli.verbs.producers", "stop or start the producers of an address"),
    "why": ("broker.cli.verbs.why", "say why a link is blocked and what would free it"),
    "close": ("broker.cli.verbs.close", "close connections, or detach links"),
    "events": ("broker.cli.verbs.events", "show what happened to flow: gates, drops, connections, samples"),
    "send": ("broker.cli.verbs.send", "send messages to an address"),
    "receive": ("broker.cli.verbs.receive", "receive messages from an address"),
    "delayed": ("broker.cli.verbs.delayed", "list messages that wait for their time, or cancel one"),
    "browse": ("broker.cli.verbs.browse", "look at a queue's messages without taking them"),
    "move": ("broker.cli.verbs.move", "move messages from one queue to another"),
    "purge": ("broker.cli.verbs.purge", "drop a queue's messages"),
    "groups": ("broker.cli.verbs.groups", "show the message groups of a queue, or free one"),
    "readers": ("broker.cli.verbs.readers", "show the named readers of a stream, or forget one"),
    "log-level": ("broker.cli.verbs.loglevel", "show and change from which level on the broker logs"),
    "trace": ("broker.cli.verbs.trace", "log the frames of one connection for a while"),
    "cluster": ("broker.cli.verbs.cluster", "show a replicated cell, or have another member own it"),
    "store": ("broker.cli.verbs.store", "check, measure and back up a data directory"),
    "users": ("broker.cli.verbs.users", "keep the file of users that a broker lets in"),
    "bench": ("broker.cli.verbs.bench", "measure a broker's throughput and latency"),
    "advise": ("broker.cli.verbs.advise", "try other thresholds on a recorded load and recommend some"),
    "acl": ("broker.cli.verbs.acl", "say who may do what, and by which rule"),
    "certs": ("broker.cli.verbs.certs", "make certificates to try TLS with"),
    "schema": ("broker.cli.verbs.schema", "print the JSON Schema of the configuration files"),
    "completion": ("broker.cli.terminal.completion", "print the completion of bash, zsh or fish"),
}

REFUSED, USAGE, INTERRUPTED = 1, 2, 128 + signal.SIGINT


class UsageError(Exception):
    """The command line or an input file makes no sense; the text says where and why."""


def overview() -> str:
    """What ``sluice --help`` prints."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items()]
    return "\n".join(
        [
            "usage: sluice VERB [ARGUMENTS]",
            "",
            *lines,
            "",
            "sluice VERB --help tells more, with examples. The broker meant is -b URL, else SLUICE_BROKER,",
            "else amqp://127.0.0.1:5672. Exit status: 0 done, 1 refused, 2 usage.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit status; what it printed is written by then."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _perform(words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone.
        _let_go()
        return REFUSED
    except OSError as fault:
        _let_go()
        if words[:1] == ["serve"]:  # a broker says so itself where the system is at fault: this is ours
            raise
        where = f"{fault.filename}: " if fault.filename else ""
        print(f"sluice {' '.join(words[:1])}: {where}{fault.strerror or fault}", file=sys.stderr)
        return REFUSED
    return status


def _let_go() -> None:
    """What is left in the buffer goes nowhere; Python would complain once more while flushing at exit."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _perform(words: list[str]) -> int:
    if words[0:1] == ["help"] and len(words) > 1:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else USAGE
    if words[0] == "--version":
        print(_version())
        return 0
    if words[0] not in VERBS:
        return _unknown(words[0])
    return _run(words[0], words[1:])


def _version() -> str:
    from importlib.metadata import version

    return f"sluice {version('sluice-mq')}"


def _unknown(word: str) -> int:
    close = get_close_matches(word, VERBS, 1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    print(f"sluice: unknown verb {word!r}{hint}; sluice --help lists them", file=sys.stderr)
    return USAGE


def verb_of(verb: str) -> tuple[ModuleType, ArgumentParser]:
    """A verb's module and its parser."""
    import argparse

    name, summary = VERBS[verb]
    module = import_module(name)
    parser = argparse.ArgumentParser(
        prog=f"sluice {verb}",
        description=module.__doc__ or summary,
        epilog=_examples(module.EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return module, parser


def _examples(examples: Sequence[tuple[str, str]]) -> str:
    width = max((len(command) for command, _ in examples), default=0)
    return "\n".join(["examples:", *(f"  {command:<{width}}  # {text}" for command, text in examples)])


def _run(verb: str, words: Sequence[str]) -> int:
    from broker.errors import SluiceError

    try:
        module, parser = verb_of(verb)
        return int(module.run(_parsed(parser, words)))
    except SystemExit as stop:  # argparse has printed what it had to say
        return stop.code if isinstance(stop.code, int) else USAGE
    except UsageError as error:
        return _say(verb, error, USAGE)
    except SluiceError as error:
        return _say(verb, error, REFUSED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _parsed(parser: ArgumentParser, words: Sequence[str]) -> Namespace:
    """Options may stand before, between and behind the words, but in verbs that have verbs of their own.

    Where '--' says that no more options follow, they stand before it, for the other parser forgets that.
    """
    if "--" not in words:
        with suppress(TypeError):  # of a verb that has verbs of its own
            return parser.parse_intermixed_args(words)
    return parser.parse_args(words)


def _say(verb: str, error: Exception, status: int) -> int:
    from broker.cli.terminal.printable import printable_lines

    print(f"sluice {verb}: {printable_lines(str(error))}", file=sys.stderr)
    return status


if __name__ == "__main__":
    # By its own name, so that the verbs' UsageError is the one that is caught.
    sys.exit(import_module("broker.cli.main").main())
