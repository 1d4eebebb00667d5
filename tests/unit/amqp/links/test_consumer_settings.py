"""A node's settings at its consumer links: they apply at once and forget nothing that stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.amqp.links.consumer import ConsumerLink
from broker.amqp.links.consumer_settings import fit, wanted
from broker.config.flow import BrokerDefaults
from broker.config.node import NodeSettings
from broker.config.thresholds import resolve
from broker.flow.window import Window


def link() -> Any:
    made = SimpleNamespace(window=Window(0, 50, None), pace=None, watch=None, slow=False, limited=[])
    made.limit_hold = made.limited.append
    return made


def settings(**given: object) -> NodeSettings:
    return resolve(given, BrokerDefaults())


def put(to: Any, **given: object) -> Any:
    fit(cast(ConsumerLink, to), settings(**given), 10**9)
    return to


def test_the_window_follows_the_settings() -> None:
    made = put(link(), consumer_flow_limit=10)
    assert made.window.own_room() == 10
    put(made, consumer_flow_limit=4)
    assert made.window.own_room() == 4
    assert made.pace is None


def test_an_adaptive_window_is_sized_by_the_same_pace_as_before() -> None:
    made = put(link(), dispatch="adaptive", consumer_flow_limit=100)
    pace = made.pace
    assert pace is not None
    put(made, dispatch="adaptive", consumer_flow_limit=50)
    assert made.pace is pace
    put(made, dispatch="fair")
    assert made.pace is None


@pytest.mark.parametrize(("rate", "same"), [(10, True), (20, False)])
def test_a_watch_begins_anew_only_where_its_settings_changed(rate: int, same: bool) -> None:
    made = put(link(), slow_consumer="10/s for 1s notify")
    watch = made.watch
    put(made, slow_consumer=f"{rate}/s for 1s notify")
    assert (made.watch is watch) == same


def test_nobody_is_slow_without_a_rate() -> None:
    made = put(link(), slow_consumer="10/s for 1s notify")
    made.slow = True
    put(made)
    assert (made.watch, made.slow) == (None, False)


def test_a_window_without_a_link_wants_nothing() -> None:
    assert wanted(Window(10, 50, None)) == 0


def test_a_link_is_told_how_long_it_may_hold_a_message() -> None:
    assert put(link(), consumer_timeout="3s").limited == [3 * 10**9]
    assert put(link()).limited == [0]
