"""Declare arguments: Qpid's words and ours are one, and an unknown one is refused."""

from __future__ import annotations

import pytest

from broker.config.flow import BrokerDefaults
from broker.config.node import SettingError
from broker.config.synonyms import argument_key, from_arguments
from broker.config.thresholds import resolve

pytestmark = pytest.mark.flow


def test_qpid_arguments_are_our_settings() -> None:
    assert from_arguments(
        {
            "qpid.flow_stop_size": "60MB",
            "qpid.flow_resume_size": 1000,
            "qpid.flow_stop_count": "900",
            "qpid.flow_resume_count": 500,
            "qpid.max_count": 1000,
            "qpid.max_size": 104857600,
            "qpid.policy_type": "ring",
            "durable": "true",
        }
    ) == {
        "flow_stop_size": "60MB",
        "flow_resume_size": 1000,
        "flow_stop_count": 900,
        "flow_resume_count": 500,
        "max_count": 1000,
        "max_size": 104857600,
        "overflow": "ring",
        "durable": True,
    }


def test_arguments_as_text_are_read_like_values() -> None:
    given = from_arguments(
        {"duplicate_window": "500 10m", "dead_letter_address": "5", "max_delivery_count": "3"}
    )
    settings = resolve(given, BrokerDefaults())
    assert (settings.duplicate_window_count, settings.duplicate_window_ms) == (500, 600_000)
    assert (settings.dead_letter_address, settings.max_delivery_count) == ("5", 3)


def test_arguments_in_our_own_words_pass_unchanged() -> None:
    ours = {"max_count": 5, "when_full": "reject"}
    assert from_arguments(from_arguments(ours)) == ours


@pytest.mark.parametrize(
    ("word", "ours"),
    [("reject", "reject"), ("ring", "ring"), ("ring_strict", "ring"), ("flow_to_disk", "page")],
)
def test_policy_types(word: str, ours: str) -> None:
    assert from_arguments({"qpid.policy_type": word}) == {"overflow": ours}


def test_policy_type_none_leaves_it_to_the_broker() -> None:
    assert from_arguments({"qpid.policy_type": "none"}) == {}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"qpid.flow_stop_cuont": 1},
            "unknown argument 'qpid.flow_stop_cuont' (did you mean 'qpid.flow_stop_count'?)",
        ),
        ({"x-foo": 1}, "unknown argument 'x-foo'"),
        ({"qpid.max_count": 1, "max_count": 2}, "max_count and qpid.max_count disagree"),
        ({"qpid.policy_type": "page"}, "qpid.policy_type: expected one of none, reject, ring"),
    ],
)
def test_other_arguments_are_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingError) as refused:
        from_arguments(arguments)
    assert refused.value.reason.startswith(reason)


def test_an_argument_s_own_name_can_be_asked() -> None:
    assert argument_key("qpid.policy_type") == "overflow"
    assert argument_key("max_count") == "max_count"
