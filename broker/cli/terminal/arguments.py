"""Arguments that several verbs share, and the kinds of value they take."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.errors import OperatorError
from broker.units import parse_size

DEFAULT_BROKER = "amqp://127.0.0.1:5672"
SECRET_BYTES = 4096
TLS_FLAGS = (
    ("ca", "PEM file of who may sign the broker's certificate; else the system's authorities"),
    ("cert", "PEM file of a certificate of your own"),
    ("key", "PEM file of its key, if it isn't in the same file"),
)
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def add_broker(parser: argparse.ArgumentParser) -> None:
    """-b/--broker, as in qpid-config."""
    parser.add_argument(
        "-b",
        "--broker",
        metavar="URL",
        type=with_login,
        default=os.environ.get("SLUICE_BROKER", DEFAULT_BROKER),
        help=f"amqp[s]://[user:password@]host[:port] (default: SLUICE_BROKER, else {DEFAULT_BROKER}; user and"
        " password: SLUICE_USER, SLUICE_PASSWORD or SLUICE_PASSWORD_FILE)",
    )
    add_tls(parser, "amqps://")


def add_tls(parser: argparse.ArgumentParser, scheme: str) -> None:
    """--ca, --cert and --key, for URLs of that scheme."""
    tls = parser.add_argument_group(f"TLS, for {scheme}")
    for flag, what in TLS_FLAGS:
        variable = f"SLUICE_{flag.upper()}"
        tls.add_argument(f"--{flag}", metavar="FILE", action=_Set, help=f"{what} (default: {variable})")


class _Set(argparse.Action):
    """Into the environment: where every client of this process, and of those it starts, looks."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        os.environ[f"SLUICE_{self.dest.upper()}"] = str(values)


def with_login(url: str) -> str:
    """A broker's address with the user and the password that the environment names, where it has none."""
    from urllib.parse import quote

    user, password = os.environ.get("SLUICE_USER", ""), os.environ.get("SLUICE_PASSWORD", "")
    scheme, separator, rest = url.rpartition("://")
    login, _, host = rest.rpartition("@")
    if not (user or login) or ":" in login:
        return url
    path = os.environ.get("SLUICE_PASSWORD_FILE")
    if not password and path:
        password = first_line(path)
    name = login or quote(user, "")
    return (
        f"{scheme}{separator}{name}:{quote(password, '')}@{host}"
        if password
        else (f"{scheme}{separator}{name}@{host}")
    )


def shown(url: str) -> str:
    """A broker's address without user and password."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json, for programs that read what a verb prints."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def first_line(path: str) -> str:
    """The first line of a file that holds a secret, or of standard input for '-'. OperatorError if it can't
    be read.
    """
    try:
        if path == "-":
            raw = sys.stdin.buffer.readline(SECRET_BYTES)
        else:
            with Path(path).open("rb") as file:
                raw = file.readline(SECRET_BYTES)
        return raw.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise OperatorError(f"{path}: not UTF-8") from None
    except OSError as error:
        raise OperatorError(f"{path}: cannot be read: {error.strerror}") from error


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


def size(text: str) -> int:
    """Bytes; with a unit, as in settings."""
    try:
        return parse_size(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None


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


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers above 0 with commas between them."""
    return tuple(count(word.strip()) for word in text.split(","))


def resumes(text: str) -> tuple[float, ...]:
    """Whole numbers above 0, or percentages, with commas between them."""
    return tuple(
        _share(word) if word.strip().endswith("%") else float(count(word.strip())) for word in text.split(",")
    )


def _share(word: str) -> float:
    number = word.strip().removesuffix("%").strip()
    if not re.fullmatch(r"[1-9][0-9]?", number):
        raise argparse.ArgumentTypeError(f"{word!r} is no percentage from 1 to 99")
    return int(number) / 100


def size_above_0(text: str) -> int:
    """A size above 0, with its unit."""
    try:
        size = parse_size(text.strip())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if size == 0:
        raise argparse.ArgumentTypeError("expected a size above 0")
    return size


def sizes(text: str) -> tuple[int, ...]:
    """Sizes above 0 with commas between them."""
    return tuple(map(size_above_0, text.split(",")))


def size_resumes(text: str) -> tuple[float, ...]:
    """Sizes above 0, or percentages, with commas between them."""
    return tuple(
        _share(word) if word.strip().endswith("%") else float(size_above_0(word)) for word in text.split(",")
    )
