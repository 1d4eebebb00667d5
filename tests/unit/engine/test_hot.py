"""Settings that are read for every message: each is a row of one table, a C type, and where it is read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import broker
from broker import constants
from broker.config.node import HOT, HotSettings, NodeSettings
from broker.engine.hot import hot_numbers

pytestmark = pytest.mark.flow

ROOT = Path(broker.__file__).parent
DECLARED = re.compile(r"cdef public (?:bint|long) (.+)")


def test_the_table_and_the_c_types_have_the_same_names() -> None:
    text = (ROOT / "engine/hot.pxd").read_text()
    declared = [name for line in DECLARED.findall(text) for name in line.split(", ")]
    assert sorted(declared) == sorted(HOT)


def test_nobody_between_the_table_and_the_readers_names_one() -> None:
    for file in ("engine/configuring.py", "engine/hot.py", "engine/node.pxd"):
        text = (ROOT / file).read_text()
        # The configurator reads one of them itself: a node that pages has other limits.
        assert {name for name in HOT if re.search(rf"\b{name}\b(?! ==)", _code(text))} == set(), file


def _code(text: str) -> str:
    """Return a file's text without what its settings are called elsewhere."""
    return re.sub(r"settings\.\w+", "", text)


@pytest.mark.parametrize(
    ("settings", "name", "number"),
    [
        ({"dispatch": "fill"}, "by_turn", True),
        ({"consumers": "single_active"}, "single_active", True),
        ({"enforce_flow": "with_active_consumers"}, "always_enforced", False),
        ({"pending_message_limit": 7}, "pending_limit", 7),
        ({"overflow": "ring"}, "overflow", constants.OVERFLOW_RING),
        ({"overflow": "page"}, "overflow", constants.OVERFLOW_PAGE),
        ({"when_full": "reject_after"}, "when_full", constants.FULL_REJECT_AFTER),
    ],
)
def test_each_follows_its_setting(settings: dict[str, object], name: str, number: int) -> None:
    plain = NodeSettings()
    changed = replace(plain, **settings)  # type: ignore[arg-type]
    before, after = (hot_numbers(HotSettings(each)) for each in (plain, changed))
    assert getattr(after, name) == number != getattr(before, name)
    others = [each for each in HOT if each != name]
    assert [getattr(after, each) for each in others] == [getattr(before, each) for each in others]


@pytest.mark.parametrize("overflow", ["reject", "ring", "drop_newest", "dead_letter", "page"])
def test_every_word_of_overflow_has_a_number(overflow: str) -> None:
    assert hot_numbers(HotSettings(NodeSettings(overflow=overflow))).overflow in range(5)
