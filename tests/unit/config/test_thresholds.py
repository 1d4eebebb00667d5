"""From what someone set to the effective settings of a node (FLOW §2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.config.flow import BrokerDefaults
from broker.config.node import FIELDS, NodeSettings, SettingError
from broker.config.node_types import Value
from broker.config.thresholds import bounded, complete, resolve
from broker.errors import OperatorError
from broker.queues.expiry import deadline_ms
from broker.units import KB, MB

pytestmark = pytest.mark.flow

DEFAULTS = BrokerDefaults()
NO_DEFAULTS = BrokerDefaults(default_flow_stop_threshold=0, default_flow_resume_threshold=0)


def resolved(defaults: BrokerDefaults = DEFAULTS, **explicit: object) -> NodeSettings:
    return resolve(explicit, defaults)


def counts(settings: NodeSettings) -> tuple[int, int, int]:
    return settings.max_count, settings.flow_stop_count, settings.flow_resume_count


def sizes(settings: NodeSettings) -> tuple[int, int, int]:
    return settings.max_size, settings.flow_stop_size, settings.flow_resume_size


def refusal(defaults: BrokerDefaults = DEFAULTS, **explicit: object) -> str:
    with pytest.raises(SettingError) as refused:
        resolve(explicit, defaults)
    return refused.value.reason


# The table's defaults


def test_a_node_that_sets_nothing_has_the_defaults() -> None:
    assert resolved() == NodeSettings(
        kind="queue",
        durable=False,
        max_count=0,
        max_size=100 * MB,
        flow_control=True,
        flow_stop_count=0,
        flow_resume_count=0,
        flow_stop_size=80 * MB,
        flow_resume_size=70 * MB,
        enforce_flow="always",
        producer_window=1000,
        initial_credit=100,
        byte_reservation="expected",
        when_full="block",
        reject_after_ms=0,
        overflow="reject",
        consumer_flow_limit=1000,
        consumer_flow_threshold=50,
        dispatch="fair",
        max_message_size=100 * MB,
    )


# Dead letters, duplicates, memory


def test_deliveries_are_limited_where_dead_letters_have_a_place() -> None:
    assert (resolved().max_delivery_count, resolved().dead_letter_address) == (10, "DLQ")
    assert resolved(max_delivery_count=0).max_delivery_count == 0
    assert resolved(dead_letter_address="dlq").max_delivery_count == 10
    assert resolved(dead_letter_address="dlq", max_delivery_count=0).max_delivery_count == 0
    assert resolved(max_delivery_count=3).max_delivery_count == 3


@pytest.mark.parametrize("empty", [None, ""])
def test_no_dead_letter_address_is_none(empty: object) -> None:
    settings = resolved(dead_letter_address=empty)
    assert (settings.dead_letter_address, settings.max_delivery_count) == ("", 0)
    assert settings == resolve({}, BrokerDefaults().without_letters("of a test"))


def test_what_expired_is_a_dead_letter_only_where_somebody_named_a_place() -> None:
    assert not resolved().dead_letter_expired
    assert not resolved(dead_letter_address="").dead_letter_expired
    assert resolved(dead_letter_address="DLQ").dead_letter_expired
    assert not resolved(dead_letter_address="dlq", dead_letter_expired=False).dead_letter_expired
    assert resolved(dead_letter_expired=True).dead_letter_expired


def test_overflow_to_dead_letters_needs_a_place_for_them() -> None:
    assert refusal(overflow="dead_letter") == "overflow: dead_letter needs a dead_letter_address"
    settings = resolved(overflow="dead_letter", dead_letter_address="dlq", max_count=10)
    # Unlike a ring it stops its producers: only what could not be held back is a dead letter.
    assert counts(settings) == (10, 8, 7)


@pytest.mark.parametrize(
    ("given", "count", "span_ms"),
    [
        (500, 500, 0),
        ("500", 500, 0),
        ("10m", 0, 600_000),
        ("10 m", 0, 600_000),
        ("1.5s", 0, 1500),
        ("500 10m", 500, 600_000),
        (" 500  250 ms ", 500, 250),
        ({"count": 7, "time": "2s"}, 7, 2000),
        ({"count": 7}, 7, 0),
        ({"time": 2000}, 0, 2000),
        (0, 0, 0),
    ],
)
def test_a_duplicate_window_is_a_count_a_time_or_both(given: object, count: int, span_ms: int) -> None:
    settings = resolved(duplicate_window=given)
    assert (settings.duplicate_window_count, settings.duplicate_window_ms) == (count, span_ms)


@pytest.mark.parametrize(
    "wrong", ["", "soon", "10 20", "10m 500", "10m 20m", "10m20", "-5", True, None, [5], {}, {"size": 1}]
)
def test_another_duplicate_window_is_refused(wrong: object) -> None:
    reason = refusal(duplicate_window=wrong)
    assert reason.startswith("duplicate_window: expected a count such as 10000, a time such as 10m, or both")


def test_a_paging_node_has_no_thresholds_by_default() -> None:
    settings = resolved(overflow="page", max_count=1000, max_size="10 MB", memory_limit="1 MB")
    assert counts(settings) == (1000, 0, 0)
    assert (sizes(settings), settings.memory_limit) == ((10 * MB, 0, 0), MB)
    assert refusal(overflow="page", max_count=9, flow_resume_count=5) == (
        "flow_resume_count 5 needs a flow_stop_count: there is no default one,"
        " what is beyond the limit goes to disk"
    )


def test_a_paging_node_keeps_the_thresholds_it_is_given() -> None:
    settings = resolved(overflow="page", flow_stop_count=5, flow_stop_size="2MB", memory_limit="1MB")
    assert (settings.flow_stop_count, settings.flow_stop_size) == (5, 2 * MB)


@pytest.mark.parametrize(
    ("explicit", "expected"),
    [
        ({"memory_limit": "10MB"}, (10 * MB, 8 * MB, 7 * MB)),
        ({"memory_limit": "200MB"}, (100 * MB, 80 * MB, 70 * MB)),
        ({"memory_limit": "10MB", "max_size": "20MB"}, (10 * MB, 8 * MB, 7 * MB)),
        ({"memory_limit": "10MB", "max_size": 0}, (10 * MB, 8 * MB, 7 * MB)),
        ({"memory_limit": 10, "flow_stop_size": 20, "flow_resume_size": 15}, (10, 10, 10)),
        ({"memory_limit": 10, "flow_stop_size": 20, "flow_resume_size": 5}, (10, 10, 5)),
        ({"memory_limit": 10, "flow_resume_size": 15}, (10, 10, 10)),
        ({"memory_limit": 10, "flow_stop_size": 0}, (10, 0, 0)),
        ({"memory_limit": 10, "overflow": "ring"}, (10, 0, 0)),
        ({"memory_limit": 0}, (100 * MB, 80 * MB, 70 * MB)),
    ],
)
def test_a_node_that_does_not_page_has_all_it_holds_in_memory(
    explicit: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    assert sizes(resolve(explicit, DEFAULTS)) == expected


def test_what_memory_lowered_says_so() -> None:
    given = {"memory_limit": 10, "flow_stop_size": 20}
    assert complete(given, DEFAULTS).notes["max_size"] == "default lowered to memory_limit"
    assert complete(given, DEFAULTS).notes["flow_stop_size"] == "lowered to memory_limit"
    assert complete({"memory_limit": 10}, DEFAULTS).notes["flow_stop_size"] == "default (80 % of max_size)"


@pytest.mark.parametrize(
    ("limit", "stop", "resume"),
    [
        (1000, 800, 700),
        (1, 1, 1),  # 0.8 rounds up; 0.7 truncated is 0, which means equal to stop
        (2, 2, 1),  # 1.6 and 1.4
        (3, 2, 2),  # 2.4 and 2.1
        (7, 6, 4),  # 5.6 and 4.9
    ],
)
def test_stop_is_80_percent_rounded_and_resume_70_truncated(limit: int, stop: int, resume: int) -> None:
    assert counts(resolved(max_count=limit)) == (limit, stop, resume)


def test_a_half_is_rounded_up() -> None:
    half = BrokerDefaults(default_flow_stop_threshold=50, default_flow_resume_threshold=50)
    assert counts(resolved(half, max_count=5)) == (5, 3, 2)


def test_a_tiny_share_is_still_a_threshold() -> None:
    tenth = BrokerDefaults(default_flow_stop_threshold=10, default_flow_resume_threshold=5)
    assert counts(resolved(tenth, max_count=4)) == (4, 1, 1)


def test_sizes_take_units_and_scale_alike() -> None:
    assert sizes(resolved(max_size="10 MB")) == (10 * MB, 8 * MB, 7 * MB)


def test_no_hard_limit_means_no_default_thresholds() -> None:
    assert sizes(resolved(max_size=0)) == (0, 0, 0)


def test_both_percentages_0_disable_defaults_and_nothing_else() -> None:
    assert counts(resolved(NO_DEFAULTS, max_count=1000)) == (1000, 0, 0)
    assert counts(resolved(NO_DEFAULTS, max_count=1000, flow_stop_count=900)) == (1000, 900, 900)
    assert counts(resolved(NO_DEFAULTS, max_count=10, flow_stop_count=9, flow_resume_count=5)) == (10, 9, 5)


def test_the_policy_of_the_design() -> None:
    assert counts(resolved(max_count=1000, flow_stop_count=900, flow_resume_count=500)) == (1000, 900, 500)


# Rule 1: explicit against explicit, explicit against default


@pytest.mark.parametrize("stop", [999, 1000])
def test_stop_may_equal_the_hard_limit_and_resume_may_equal_stop(stop: int) -> None:
    settings = resolved(max_count=1000, flow_stop_count=stop, flow_resume_count=stop)
    assert counts(settings) == (1000, stop, stop)


def test_stop_above_the_hard_limit_is_refused_with_both_numbers() -> None:
    assert refusal(max_count=1000, flow_stop_count=1001) == "flow_stop_count 1001 is more than max_count 1000"
    assert refusal(max_size="1MB", flow_stop_size="2MB") == "flow_stop_size 2 MB is more than max_size 1 MB"


def test_resume_above_stop_is_refused_with_both_numbers() -> None:
    assert refusal(flow_stop_count=900, flow_resume_count=901) == (
        "flow_resume_count 901 is more than flow_stop_count 900"
    )


def test_resume_above_the_hard_limit_is_refused_though_stop_is_a_default() -> None:
    assert refusal(max_count=100, flow_resume_count=101) == "flow_resume_count 101 is more than max_count 100"


def test_a_default_resume_gives_way_to_a_lower_stop() -> None:
    assert counts(resolved(max_count=1000, flow_stop_count=500)) == (1000, 500, 500)


def test_a_default_stop_gives_way_to_a_higher_resume() -> None:
    assert counts(resolved(max_count=1000, flow_resume_count=950)) == (1000, 950, 950)


def test_the_default_hard_limit_gives_way_to_higher_thresholds() -> None:
    assert sizes(resolved(flow_stop_size="200MB")) == (200 * MB, 200 * MB, 140 * MB)
    assert sizes(resolved(flow_resume_size="200MB")) == (200 * MB, 200 * MB, 200 * MB)


def test_resume_0_means_equal_to_stop() -> None:
    assert counts(resolved(max_count=1000, flow_resume_count=0)) == (1000, 800, 800)
    assert counts(resolved(max_count=1000, flow_stop_count=900, flow_resume_count=0)) == (1000, 900, 900)


def test_a_stop_without_a_hard_limit_resumes_where_it_stops() -> None:
    assert counts(resolved(flow_stop_count=900)) == (0, 900, 900)


def test_a_resume_without_any_stop_is_refused() -> None:
    assert refusal(flow_resume_count=500) == (
        "flow_resume_count 500 needs a flow_stop_count: there is no default one, max_count is not set"
    )


def test_stop_0_disables_a_unit_whatever_resume_says() -> None:
    settings = resolved(max_count=1000, flow_stop_count=0, flow_resume_count=2000, flow_stop_size=0)
    assert counts(settings) == (1000, 0, 0)
    assert sizes(settings) == (100 * MB, 0, 0)


# The switches and the shorthand


def test_flow_control_false_switches_one_node_off() -> None:
    assert resolved(flow_control=False).flow_control is False


def test_the_broker_switch_is_above_the_node() -> None:
    assert resolved(BrokerDefaults(flow_control=False), flow_control=True).flow_control is False


@pytest.mark.parametrize("empty", [{}, None, ""])
def test_flow_control_without_a_value_stops_at_256_KB(empty: object) -> None:
    settings = resolved(flow_control=empty)
    assert sizes(settings) == (100 * MB, 256 * KB, 256 * KB)
    assert settings.flow_control is True


def test_flow_control_with_a_size_stops_and_resumes_there() -> None:
    assert sizes(resolved(flow_control="60MB")) == (100 * MB, 60 * MB, 60 * MB)


def test_a_resume_spelled_out_holds_before_the_shorthand() -> None:
    assert sizes(resolved(flow_control="60MB", flow_resume_size="40MB")) == (100 * MB, 60 * MB, 40 * MB)


def test_the_shorthand_may_not_disagree_with_a_stop_size() -> None:
    assert refusal(flow_control="60MB", flow_stop_size="50MB") == (
        "flow_control '60MB' and flow_stop_size '50MB' disagree"
    )


# Overflow without flow control


@pytest.mark.parametrize(
    ("switch", "why"),
    [
        (DEFAULTS, "flow_control is false"),
        (BrokerDefaults(flow_control=False), "flow control is switched off for the whole broker"),
    ],
)
def test_without_flow_control_a_node_pages_unless_overflow_says_otherwise(
    switch: BrokerDefaults, why: str
) -> None:
    """Nobody loses messages by switching flow control off alone."""
    given: dict[str, Value] = {"flow_control": False, "memory_limit": MB}
    completed = complete(given, switch)
    assert completed.settings.overflow == "page"
    assert completed.notes["overflow"] == f"default (page: {why})"
    # A backlog on disk needs no lower limit for what is in memory.
    assert completed.settings.max_size == 100 * MB
    for word in ("reject", "ring", "drop_newest"):
        said = complete({**given, "overflow": word}, switch)
        assert said.settings.overflow == word
        assert "overflow" not in said.notes


def test_where_thresholds_hold_with_active_consumers_only_a_node_pages_by_default() -> None:
    """It keeps its thresholds for when somebody receives; what is held while somebody does fits in memory."""
    unread = resolved(enforce_flow="with_active_consumers", max_count=100, memory_limit=MB)
    assert (unread.overflow, counts(unread), unread.max_size) == ("page", (100, 80, 70), MB)
    assert resolved(enforce_flow="with_active_consumers", overflow="reject").overflow == "reject"
    assert resolved(enforce_flow="always").overflow == "reject"
    notes = complete({"enforce_flow": "with_active_consumers"}, DEFAULTS).notes
    assert notes["overflow"] == "default (page: enforce_flow is with_active_consumers)"


def test_with_flow_control_overflow_is_reject() -> None:
    assert complete({"flow_control": True}, DEFAULTS).notes["overflow"] == "default"
    assert resolved(flow_control=True).overflow == resolved().overflow == "reject"


# Ring queues, rule 10


def test_ring_queues_have_no_thresholds_by_default() -> None:
    settings = resolved(overflow="ring", max_count=1000)
    assert counts(settings) == (1000, 0, 0)
    assert sizes(settings) == (100 * MB, 0, 0)


def test_ring_queues_keep_the_thresholds_they_are_given() -> None:
    assert counts(resolved(overflow="ring", max_count=1000, flow_stop_count=900)) == (1000, 900, 700)


# when_full, rule 7


@pytest.mark.parametrize(
    ("explicit", "word", "after_ms"),
    [
        ({"when_full": "reject"}, "reject", 0),
        ({"when_full": {"reject_after": "3s"}}, "reject_after", 3000),
        ({"when_full": "reject_after: 3s"}, "reject_after", 3000),
        ({"when_full": "reject_after 500 ms"}, "reject_after", 500),
        ({"reject_after": "3s"}, "reject_after", 3000),
        ({"when_full": "reject_after", "reject_after": "3s"}, "reject_after", 3000),
        ({"send_fail_if_no_space": True}, "reject", 0),
        ({"send_fail_if_no_space": False}, "block", 0),
        ({"send_fail_if_no_space_after_timeout": 3000}, "reject_after", 3000),
        ({"send_fail_if_no_space_after_timeout": 0}, "block", 0),
        ({"send_fail_if_no_space": False, "send_fail_if_no_space_after_timeout": 3000}, "reject_after", 3000),
        ({"send_fail_if_no_space": True, "send_fail_if_no_space_after_timeout": 0}, "reject", 0),
        ({"send_fail_if_no_space": True, "when_full": "reject"}, "reject", 0),
    ],
)
def test_what_a_send_meets_in_every_dialect(explicit: dict[str, Any], word: str, after_ms: int) -> None:
    settings = resolve(explicit, DEFAULTS)
    assert (settings.when_full, settings.reject_after_ms) == (word, after_ms)


@pytest.mark.parametrize(
    ("explicit", "reason"),
    [
        ({"when_full": "reject_after"}, "when_full: reject_after needs a time, such as reject_after: 3s"),
        ({"when_full": "block", "reject_after": "3s"}, "disagree"),
        ({"send_fail_if_no_space": True, "send_fail_if_no_space_after_timeout": 3000}, "disagree"),
        (
            {"when_full": {"reject_after": "3s", "more": 1}},
            "expected 'block', 'reject' or 'reject_after', not a mapping",
        ),
        ({"reject_after": 0}, "must be at least 1, not 0"),
    ],
)
def test_contradictory_or_incomplete_answers_are_refused(explicit: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**explicit)


# Credit


def test_the_first_credit_fits_the_window() -> None:
    assert resolved(producer_window=50).initial_credit == 50
    assert resolved(initial_credit=2000).producer_window == 2000
    assert (
        refusal(initial_credit=20, producer_window=10) == "initial_credit 20 is more than producer_window 10"
    )


def test_strict_reservation_bounds_a_message_by_the_threshold() -> None:
    assert resolved(byte_reservation="strict", flow_stop_size="1MB").max_message_size == MB
    assert resolved(byte_reservation="strict", flow_stop_size=0).max_message_size == 100 * MB
    assert (
        resolved(byte_reservation="strict", flow_stop_size="1MB", flow_control=False).max_message_size
        == 100 * MB
    )
    assert resolved(flow_stop_size="1MB").max_message_size == 100 * MB


# What is refused, and how


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("flow_stop_cuont", 1, "unknown key 'flow_stop_cuont' (did you mean 'flow_stop_count'?)"),
        ("flow-stop-count", 1, "unknown key 'flow-stop-count' (did you mean 'flow_stop_count'?)"),
        ("colour", "red", "unknown key 'colour'"),
        (
            "slow_consumer",
            1,
            "slow_consumer: expected a rate, a time and an action such as `10/s for 30s notify`, not 1",
        ),
        ("slow_consumer", {"rate": 0, "for": "1s"}, "slow_consumer: must be at least 1, not 0"),
        ("slow_consumer", "5/s for 10ms", "slow_consumer: must be at least 1000, not 10"),
        ("consumer_flow_min", 0, "consumer_flow_min: must be at least 1, not 0"),
        ("max_count", -1, "max_count: must be at least 0, not -1"),
        ("max_count", True, "max_count: expected a whole number, not true"),
        ("max_count", "1000", "max_count: expected a whole number, not '1000'"),
        ("max_count", 1 << 60, f"max_count: must be at most {1 << 50}, not {1 << 60}"),
        ("durable", "yes", "durable: expected true or false, not 'yes'"),
        ("durable", 1, "durable: expected true or false, not 1"),
        (
            "overflow",
            "rign",
            "overflow: expected 'reject', 'ring', 'drop_newest', 'dead_letter' or 'page', not 'rign'"
            " (did you mean 'ring'?)",
        ),
        ("dead_letter_address", 5, "dead_letter_address: expected the name of a node, not 5"),
        ("dead_letter_address", "$x", "dead_letter_address: expected the name of a node, not '$x'"),
        ("dead_letter_address", "a\n", "dead_letter_address: expected the name of a node, not 'a\\n'"),
        (
            "duplicate_window",
            "10 20",
            "duplicate_window: expected a count such as 10000, a time such as 10m, or both, not '10 20'",
        ),
        ("duplicate_window", -1, "duplicate_window: must be at least 0, not -1"),
        ("duplicate_window", {"time": 0}, "duplicate_window: must be at least 1, not 0"),
        ("duplicate_window", {"count": "5"}, "duplicate_window: expected a whole number, not '5'"),
        ("max_delivery_count", "many", "max_delivery_count: expected a whole number, not 'many'"),
        (
            "dispatch",
            "adaptiv",
            "dispatch: expected 'fair', 'fill' or 'adaptive', not 'adaptiv' (did you mean 'adaptive'?)",
        ),
        ("flow_control", "fast", "flow_control: expected true, false or a size such as 60MB, not 'fast'"),
        (
            "consumer_flow_threshold",
            101,
            "consumer_flow_threshold: expected a whole percentage from 0 to 100 such as 50%, not 101",
        ),
        ("max_message_size", 0, "max_message_size: must be at least 1, not 0"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_what_was_expected(key: str, value: object, reason: str) -> None:
    explicit: dict[str, Any] = {key: value}
    assert refusal(**explicit) == reason


def test_a_refusal_is_the_operator_s_and_names_its_keys() -> None:
    with pytest.raises(OperatorError) as refused:
        resolve({"max_count": 1, "flow_stop_count": 2}, DEFAULTS)
    assert isinstance(refused.value, SettingError)
    assert refused.value.names == ("flow_stop_count", "max_count")


# The law

_numbers = st.one_of(st.integers(0, 50), st.integers(0, 1 << 50))
_explicit = st.fixed_dictionaries(
    {},
    optional={
        "max_count": _numbers,
        "max_size": _numbers,
        "flow_stop_count": _numbers,
        "flow_resume_count": _numbers,
        "flow_stop_size": _numbers,
        "flow_resume_size": _numbers,
        "flow_control": st.one_of(st.booleans(), _numbers.filter(bool)),
        "overflow": st.sampled_from(["reject", "ring", "drop_newest", "page"]),
        "memory_limit": _numbers,
        "producer_window": st.integers(1, 2000),
        "initial_credit": st.integers(1, 2000),
        "byte_reservation": st.sampled_from(["expected", "strict"]),
        "max_message_size": st.integers(1, 1 << 40),
    },
)


@st.composite
def _defaults(draw: st.DrawFn) -> BrokerDefaults:
    stop = draw(st.integers(0, 100))
    return BrokerDefaults(
        default_flow_stop_threshold=stop,
        default_flow_resume_threshold=draw(st.integers(0, stop)),
        max_size=draw(_numbers),
        producer_window=draw(st.integers(1, 2000)),
        initial_credit=draw(st.integers(1, 2000)),
    )


@given(_explicit, _defaults())
def test_thresholds_are_in_order_or_the_declaration_is_refused(
    explicit: dict[str, Any], defaults: BrokerDefaults
) -> None:
    try:
        settings = resolve(explicit, defaults)
    except SettingError as error:
        refused = error
    else:
        in_order(settings)
        return
    assert set(refused.names) <= set(FIELDS)
    assert set(refused.names) & set(explicit) or "flow_control" in explicit


def in_order(settings: NodeSettings) -> None:
    for hard, stop, resume in (counts(settings), sizes(settings)):
        assert 0 <= resume <= stop
        assert (resume == 0) == (stop == 0)
        assert hard == 0 or stop <= hard
    if settings.memory_limit and settings.overflow != "page":
        assert 0 < settings.max_size <= settings.memory_limit
    assert 1 <= settings.initial_credit <= settings.producer_window
    if settings.byte_reservation == "strict" and settings.flow_stop_size and settings.flow_control:
        assert settings.max_message_size <= settings.flow_stop_size


@given(_explicit, _defaults())
def test_what_was_set_is_what_holds(explicit: dict[str, Any], defaults: BrokerDefaults) -> None:
    try:
        settings = resolve(explicit, defaults)
    except SettingError:
        return
    for name in (
        "max_count",
        "max_size",
        "flow_stop_count",
        "flow_stop_size",
        "producer_window",
        "initial_credit",
    ):
        bounded = (
            name.endswith("_size") and explicit.get("overflow") != "page" and explicit.get("memory_limit")
        )
        if name in explicit and not bounded:
            assert getattr(settings, name) == explicit[name]
        elif name in explicit:
            assert getattr(settings, name) in (explicit[name], explicit["memory_limit"])


_few = st.integers(0, 20)


@settings(max_examples=500)
@given(_few, _few, st.one_of(st.none(), _few), st.integers(0, 100))
def test_a_default_beside_an_explicit_threshold_keeps_the_order(
    hard: int, stop: int, resume: int | None, percent: int
) -> None:
    defaults = BrokerDefaults(default_flow_stop_threshold=100, default_flow_resume_threshold=percent)
    explicit: dict[str, Any] = {"max_count": hard, "flow_stop_count": stop, "flow_resume_count": resume}
    in_range = (hard == 0 or stop <= hard) and (stop == 0 or (resume or 0) <= stop)
    if resume is None:
        del explicit["flow_resume_count"]
    if in_range or stop == 0:
        in_order(resolve(explicit, defaults))
    else:
        assert "is more than" in refusal(**explicit)


@given(_numbers, _defaults())
def test_a_hard_limit_alone_is_never_refused(limit: int, defaults: BrokerDefaults) -> None:
    settings = resolve({"max_count": limit}, defaults)
    assert counts(settings)[0] == limit


# --- times


def test_times_of_messages_and_of_idle_nodes() -> None:
    settings = resolved(message_ttl="10m", max_ttl="1h", expire_after="30s")
    assert settings.message_ttl_ms == 600_000
    assert settings.max_ttl_ms == 3_600_000
    assert settings.expire_after_ms == 30_000
    plain = resolved()
    assert (plain.message_ttl_ms, plain.max_ttl_ms, plain.expire_after_ms) == (0, 0, 0)


def test_no_message_is_given_more_time_than_any_may_have() -> None:
    completed = complete({"message_ttl_ms": 5000, "max_ttl_ms": 2000}, BrokerDefaults())
    assert completed.settings.message_ttl_ms == 2000
    assert completed.notes["message_ttl_ms"] == "lowered to max_ttl"
    # None is given, and all are cut, where only that is set.
    assert resolved(max_ttl="2s").message_ttl_ms == 0
    assert resolved(message_ttl="5s", max_ttl=0).message_ttl_ms == 5000


@pytest.mark.parametrize("key", ["message_ttl", "max_ttl", "expire_after"])
def test_another_time_is_refused(key: str) -> None:
    for wrong in ("soon", -1, 1 << 32):
        explicit: dict[str, Any] = {key: wrong}
        assert refusal(**explicit).startswith(f"{key}: ")


_times = st.one_of(st.just(0), st.integers(1, 1 << 32))


@given(st.integers(0, 1 << 42), _times, _times, _times, _times)
def test_a_deadline_is_the_earliest_of_what_holds(
    now: int, ttl: int, absolute: int, most: int, given_ttl: int
) -> None:
    """Brought times hold unless they are longer than the longest; one is given only where none is brought."""
    if most and given_ttl:
        given_ttl = min(given_ttl, most)
    found = deadline_ms(now, ttl, absolute, given_ttl, most)
    brought = [each for each in (ttl and now + ttl, absolute) if each]
    if found == 0:
        assert not brought
        assert not given_ttl
        assert not most
        return
    for end in brought:
        assert found <= end
    if most:
        assert found <= now + most
    allowed = [*brought, now + most if most else 0, now + given_ttl if given_ttl and not brought else 0]
    assert found in allowed
    if given_ttl and not brought:
        assert found == now + given_ttl
    # Without a policy it is what it was: the earlier of the two that a message may bring.
    assert deadline_ms(now, ttl, absolute, 0, 0) == min(brought, default=0)


# --- what a client asks for, within policies


@pytest.mark.parametrize(
    ("asked", "said", "held"),
    [
        ({"max_count": 1000}, {}, {"max_count": 1000}),
        ({"max_count": 1000}, {"max_count": 50}, {"max_count": 50}),
        ({"max_count": 0}, {"max_count": 50}, {"max_count": 50}),
        ({"max_count": 0}, {"max_count": 0}, {"max_count": 0}),
        ({"flow_stop_count": 0}, {"max_count": 50}, {"flow_stop_count": 0}),
        ({"flow_stop_count": 0}, {"flow_stop_count": 40}, {"flow_stop_count": 40}),
        ({"flow_stop_size": 90}, {"max_size": 50}, {"flow_stop_size": 50}),
        ({"flow_resume_count": 45}, {"flow_stop_count": 40}, {"flow_resume_count": 40}),
        ({"flow_resume_count": 0}, {"flow_resume_count": 4}, {"flow_resume_count": 0}),
        # A threshold of the policy's would be above what is asked for: it comes down with it.
        ({"max_count": 30}, {"flow_stop_count": 40}, {"max_count": 30, "flow_stop_count": 30}),
        (
            {"flow_stop_count": 10},
            {"flow_stop_count": 40, "flow_resume_count": 20},
            {"flow_stop_count": 10, "flow_resume_count": 10},
        ),
        # Numbers of one's own that contradict each other are left to be refused.
        (
            {"max_count": 10, "flow_stop_count": 20},
            {"max_count": 50},
            {"max_count": 10, "flow_stop_count": 20},
        ),
        ({"overflow": "ring"}, {"overflow": "reject"}, {}),
        ({"overflow": "ring", "durable": True}, {}, {"overflow": "ring", "durable": True}),
    ],
)
def test_a_client_asks_for_no_more_than_policies_say(
    asked: dict[str, Value], said: dict[str, Value], held: dict[str, Value]
) -> None:
    assert bounded(asked, said) == held


_ways = st.fixed_dictionaries(
    {}, optional={f"{name}_count": st.integers(0, 9) for name in ("max", "flow_stop", "flow_resume")}
)


@settings(max_examples=500)
@given(_ways, _ways)
def test_policies_that_hold_are_never_exceeded(asked: dict[str, Any], said: dict[str, Any]) -> None:
    """What holds with it is refused, or has each number at most the policies' own; less is given if asked."""
    try:
        policy = complete(said, BrokerDefaults()).settings
        held = complete({**said, **bounded(asked, said)}, BrokerDefaults()).settings
    except SettingError:
        return
    for name in ("max_count", "flow_stop_count"):
        if said.get(name):
            assert 0 < getattr(held, name) <= getattr(policy, name)
        elif name in asked and not any(said.values()):
            assert getattr(held, name) == asked[name]


def test_memory_says_nothing_of_what_a_stream_keeps_on_disk() -> None:
    stream = {"queue_type": "stream", "memory_limit": "64 MB"}
    assert resolve(stream | {"durable": True}, DEFAULTS).max_size == 0
    assert resolve(stream | {"durable": True, "max_size": "10 GB"}, DEFAULTS).max_size == 10 << 30
    assert resolve(stream, DEFAULTS).max_size == 64 << 20
