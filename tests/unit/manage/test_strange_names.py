"""Values no setting takes: whatever a client sends as an argument, it is taken or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.node import FIELDS
from broker.config.synonyms import ARGUMENTS
from broker.errors import OperatorError
from tests.unit.manage_world import World

STRANGE: tuple[object, ...] = (
    *(-1, 0, 1, 2**31, 2**63, 10**18, 10**30, -(10**30), 0.5, 1e308, float("inf"), float("nan")),
    *(True, False, None, "", "x", "1e9", "١", "10 MB", "-5 s", "9" * 5000, "\x00", "ü" * 1000, "\ud800"),
    *([], {}, [[1]], {"a": None}, b"bytes", object()),
)
SETTINGS = sorted({*FIELDS, *ARGUMENTS})


def tried(name: str, value: object) -> None:
    world = World()
    world.queue()
    before = world.model.queries.read("org.sluice.queue", "orders")
    for verb in (world.model.explanations.effect, world.model.nodes.update):
        reason = refused(verb, {name: value})
        assert reason != ""
        if reason is not None:
            assert world.model.queries.read("org.sluice.queue", "orders") == before


def refused(
    verb: Callable[[str, Mapping[str, object]], object], arguments: Mapping[str, object]
) -> str | None:
    try:
        verb("orders", arguments)
    except OperatorError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("name", SETTINGS)
def test_a_strange_value(name: str) -> None:
    for value in STRANGE:
        tried(name, value)


@given(
    st.sampled_from(SETTINGS),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_any_value(name: str, value: object) -> None:
    tried(name, value)
