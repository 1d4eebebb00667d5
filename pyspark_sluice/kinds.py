"""What an option's text may say: a class for each kind, which reads it and says what it would have taken."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import urlsplit

PORTS = {"amqp": 5672, "amqps": 5671}
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBERS = {"earliest": -2, "latest": -1}
_SIZES = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


class Kind(Protocol):
    """Reads one option. ``label`` stands in the documentation."""

    @property
    def label(self) -> str: ...

    def read(self, text: str) -> object:
        """The value; ValueError says what was expected, without the text itself."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker of the list."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Text:
    """Any text that isn't empty."""

    label: str = "text"

    def read(self, text: str) -> str:
        if not text.strip():
            raise ValueError("must not be empty")
        return text.strip()


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def label(self) -> str:
        return ", ".join(f"`{word}`" for word in self.words)

    def read(self, text: str) -> str:
        found = {word.lower(): word for word in self.words}.get(text.strip().lower())
        if found is None:
            raise ValueError(f"must be one of {', '.join(self.words)}")
        return found


@dataclass(frozen=True, slots=True)
class Words:
    """Several words with commas or spaces between them."""

    words: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"some of {', '.join(f'`{word}`' for word in self.words)}"

    def read(self, text: str) -> tuple[str, ...]:
        found = tuple(word.upper() for word in re.split(r"[,\s]+", text.strip()) if word)
        if not found or not set(found) <= set(self.words):
            raise ValueError(f"must be some of {', '.join(self.words)}")
        return found


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    label: str = "true or false"

    def read(self, text: str) -> bool:
        try:
            return {"true": True, "false": False}[text.strip().lower()]
        except KeyError:
            raise ValueError("must be true or false") from None


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number."""

    least: int = 1
    most: int = 1_000_000_000
    label: str = "number"

    def read(self, text: str) -> int:
        try:
            value = int(text.strip().replace("_", ""))
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not self.least <= value <= self.most:
            raise ValueError(f"must be {self.least} to {self.most}")
        return value


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds, or a number with ms, s, m or h."""

    least: float = 0.0
    label: str = "duration"

    def read(self, text: str) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", text.strip().lower())
        if found is None:
            raise ValueError("must be a duration such as 500 ms, 30 s or 5 m")
        value = float(found[1]) * _UNITS[found[2] or ""]
        if value < self.least:
            raise ValueError(f"must be at least {self.least:g} s")
        return value


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, or a number with KB, MB or GB (1 KB = 1024 B)."""

    label: str = "size"

    def read(self, text: str) -> int:
        found = re.fullmatch(r"(\d+)\s*(b|kb|mb|gb)?", text.strip().lower())
        if found is None or int(found[1]) == 0:
            raise ValueError("must be a size such as 65536 or 10 MB")
        return int(found[1]) * _SIZES[found[2] or ""]


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One of a few words for all partitions of a stream, or an offset for each as JSON.

    An offset of -2 stands for `earliest`, -1 for `latest`, as for Spark's Kafka source.
    """

    words: tuple[str, ...]

    @property
    def label(self) -> str:
        return f'{", ".join(f"`{word}`" for word in self.words)}, or JSON as `{{"0": 17, "1": -1}}`'

    def read(self, text: str) -> str | tuple[tuple[int, int], ...]:
        """The word, or pairs of a partition and its offset, in the partitions' order."""
        word = text.strip().lower()
        if word in self.words:
            return word
        try:
            given = json.loads(text)
            pairs = [(int(partition), offset) for partition, offset in given.items()]
        except (ValueError, AttributeError):
            pairs = []
        least = min(_NUMBERS[each] for each in self.words)
        if not pairs or not all(type(offset) is int and offset >= least for _, offset in pairs):
            least_words = ", ".join(f"{_NUMBERS[each]} for {each}" for each in self.words)
            raise ValueError(
                f"must be {' or '.join(self.words)}, or an offset for each partition such as"
                f' {{"0": 17, "1": 4}} ({least_words})'
            )
        return tuple(sorted(pairs))


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, as milliseconds since the epoch or as ISO 8601; without a zone it is UTC.

    Digits alone are milliseconds where there are ten or more, which is from 1970-01-12 on, or as 0: fewer are
    a date of ISO 8601, such as 20261126, or a mistake.
    """

    label: str = "milliseconds since 1970, or a time as `2026-11-26T06:30:00Z`"

    def read(self, text: str) -> int:
        """Milliseconds since the epoch."""
        if re.fullmatch(r"0|\d{10,15}", text.strip()):
            return int(text)
        if text.strip().isdigit():
            raise ValueError(
                "must have ten digits or more as milliseconds since 1970; a date is written as 2026-11-26"
            )
        try:
            found = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(
                "must be milliseconds since 1970, or a time such as 2026-11-26T06:30:00Z"
            ) from None
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return round(found.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Urls:
    """Brokers in the order in which they are tried."""

    label: str = "list of `amqp[s]://host[:port]`"

    def read(self, text: str) -> tuple[Broker, ...]:
        found = tuple(_broker(each.strip()) for each in text.split(",") if each.strip())
        if not found:
            raise ValueError("must name a broker, such as amqps://broker.example.org")
        if len({broker.scheme for broker in found}) > 1:
            raise ValueError("must be all amqp:// or all amqps://, lest a failover gives up TLS")
        return found


def _broker(text: str) -> Broker:
    """Reads one address. What is wrong with it is never shown: it may hold a password."""
    try:
        parts = urlsplit(text if "://" in text else f"amqp://{text}")
        port, host = parts.port, parts.hostname
    except ValueError:
        port, host, parts = None, None, urlsplit("")
    if "@" in text:
        raise ValueError(
            "must hold no user and no password, since plans and logs show it: see user, passwordFile"
        )
    if parts.scheme not in PORTS or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must be amqp://host[:port] or amqps://host[:port], several with commas")
    return Broker(parts.scheme, host, PORTS[parts.scheme] if port is None else port)
