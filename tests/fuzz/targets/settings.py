"""The broker's own file: it is refused with the places of what is wrong, or read."""

from __future__ import annotations

import os
from pathlib import Path

from broker.config.broker import FIELDS, SECTIONS, load_settings
from broker.errors import ConfigError
from tests.fuzz.target import Target, expect
from tests.fuzz.targets.policies import WORDS

# A file that is only in memory, read as one on disk is.
_FD = os.memfd_create("broker.yaml")
FILE = Path(f"/proc/self/fd/{_FD}")
NAMES = (
    *(f"{name.rpartition('.')[2]}: ".encode() for name in FIELDS),
    *(f"{name}:\n  ".encode() for name in SECTIONS),
)
VALUES = tuple(
    b"amqp://127.0.0.1:0|0.0.0.0:8672|[::1]:1|secret:pw@|64 KB|60s|80%|info|json|- {name: a, ".split(b"|")
)


def check(data: bytes) -> None:
    os.ftruncate(_FD, 0)
    os.pwrite(_FD, data, 0)
    try:
        found = load_settings(FILE, {}, {})
    except ConfigError as refusal:
        expect(bool(refusal.problems), "refused without a reason")
        for problem in refusal.problems:
            expect(problem.file == str(FILE) and problem.text != "", "a problem without its place", problem)
        return
    expect(found == load_settings(FILE, {}, {}), "read twice it is another")
    limits = found.limits
    expect(limits.max_frame_size >= 512 and limits.max_connections >= 1, "limits that let nobody in", limits)


TARGET = Target(
    "settings",
    check,
    ("config/broker.py", "config/sources.py", "config/fields.py", "config/listeners.py", "config/yaml.py"),
    (*NAMES, *VALUES, *WORDS[:40]),
)
