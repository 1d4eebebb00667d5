"""A message that somebody looks at, by the HTTP API or the command line: whatever it is, it can be shown."""

from __future__ import annotations

import json

from broker.cli.verbs.receive import _line
from broker.codec.render import described
from tests.fuzz.mutate import AMQP_WORDS
from tests.fuzz.target import Target, expect

# A byte is shown as four characters at most, in a text, and a few more where it is a value of its own.
MOST_CHARACTERS = 40


def check(data: bytes) -> None:
    said = json.dumps(described(data), ensure_ascii=False, allow_nan=False).encode()
    expect(len(said) < MOST_CHARACTERS * len(data) + 1000, "more is shown than there is", len(said))
    for as_json in (False, True):
        line = _line(data, as_json=as_json).encode()
        expect(line.endswith(b"\n") and line.count(b"\n") <= data.count(b"\n") + 1, "not a line", line)


TARGET = Target(
    "shown", check, ("codec/render.py", "codec/sections.py"), AMQP_WORDS, largest=2048, short=3000
)
