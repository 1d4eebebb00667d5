"""Settings that an attach asks for among its terminus' properties, and the answer to them."""

from __future__ import annotations

import logging

import pytest
from proton import Terminus, symbol

from broker.amqp.control.decoding import first_of
from broker.amqp.control.node_properties import asked_of, tell_settings
from broker.config.flow import BrokerDefaults
from broker.config.node import NodeSettings
from broker.config.synonyms import PASSED_OVER
from broker.config.thresholds import resolve
from broker.errors import PeerError
from broker.loggers import about
from tests.unit.amqp.terminus import a_terminus

SOMEBODY = about("192.0.2.1:5000")


def asking(**properties: object) -> Terminus:
    terminus = a_terminus()
    terminus.properties.put_object(
        {symbol(name.replace("__", ".")): value for name, value in properties.items()}
    )
    return terminus


def settings() -> NodeSettings:
    return resolve({"max_count": 7}, BrokerDefaults())


def test_qpids_arguments_are_asked_for_and_other_properties_are_not() -> None:
    asked = asked_of(asking(qpid__max_count=7, durable=False, other=1), "source", SOMEBODY)
    assert asked == {"qpid.max_count": 7, "durable": False}


def test_a_value_that_a_setting_can_not_have_is_refused_by_its_role() -> None:
    with pytest.raises(PeerError, match="dynamic-node-properties of the target") as fault:
        asked_of(asking(qpid__max_count="many"), "target", SOMEBODY)
    assert fault.value.condition == "amqp:invalid-field"


def test_one_that_only_advises_is_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    name = sorted(PASSED_OVER)[0]
    terminus = asking()
    terminus.properties.clear()
    terminus.properties.put_object({symbol(name): "x"})
    with caplog.at_level(logging.WARNING):
        assert asked_of(terminus, "source", SOMEBODY) == {}
    assert name in caplog.text


def test_the_answer_has_what_holds_under_the_names_it_was_asked_for_by() -> None:
    ours, theirs = asking(), asking(qpid__max_count=3, other=1)
    tell_settings(ours, theirs, settings())
    assert first_of(ours.properties) == {"qpid.max_count": 7}


def test_what_was_said_of_a_dynamic_node_stays() -> None:
    ours = asking(lifetime=1)
    tell_settings(ours, asking(qpid__max_count=3), settings())
    assert first_of(ours.properties) == {"lifetime": 1, "qpid.max_count": 7}
