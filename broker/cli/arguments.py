"""Arguments that several verbs share, and the kinds of value they take."""

from __future__ import annotations

import argparse
import os
import re

DEFAULT_BROKER = "amqp://127.0.0.1:5672"
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def add_broker(parser: argparse.ArgumentParser) -> None:
    """-b/--broker, as in qpid-config."""
    parser.add_argument(
        "-b",
        "--broker",
        metavar="URL",
        default=os.environ.get("SLUICE_BROKER", DEFAULT_BROKER),
        help=f"amqp[s]://[user:password@]host[:port] (default: SLUICE_BROKER, else {DEFAULT_BROKER})",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json, for programs that read what a verb prints."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def duration(text: str) -> float:
    """Seconds from a number with ms, s, m or h; a bare number is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)", text.strip(), re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; say 500ms, 10s, 5m or 1h")
    return float(found[1]) * SECONDS[found[2].lower()]


def count(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def natural(text: str) -> int:
    """A whole number, 0 included."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def rate(text: str) -> float:
    """Messages a second, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate in messages a second")
    return value


def pair(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
