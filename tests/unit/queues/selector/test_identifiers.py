"""Names of fields: ids in one form whatever their spelling, and literals as their field spells them."""

from __future__ import annotations

import pytest

from broker.queues.selector.identifiers import correlation_id_form, message_id_form


@pytest.mark.parametrize(
    ("spelled", "form"),
    [
        ("ID:order-1", "ID:order-1"),
        ("order-1", "ID:order-1"),
        ("ID:AMQP_STRING:order-1", "ID:order-1"),
        ("ID:AMQP_NO_PREFIX:order-1", "ID:order-1"),
        ("ID:AMQP_ULONG:42", "ID:42"),
        ("ID:AMQP_UUID:AB", "ID:ab"),
        ("ID:AMQP_BINARY:ab", "ID:AB"),
        # A prefix that nobody knows is part of the id, as is one behind another.
        ("ID:AMQP_OTHER:x", "ID:AMQP_OTHER:x"),
        ("ID:AMQP_ULONG", "ID:AMQP_ULONG"),
        ("ID:ID:x", "ID:ID:x"),
        ("", "ID:"),
    ],
)
def test_a_message_id_has_one_form(spelled: str, form: str) -> None:
    assert message_id_form(spelled) == form


@pytest.mark.parametrize(
    ("spelled", "form"),
    [("ID:AMQP_ULONG:42", "ID:42"), ("request-1", "request-1"), ("AMQP_ULONG:42", "AMQP_ULONG:42"), ("", "")],
)
def test_a_correlation_id_has_that_form_if_it_is_an_id(spelled: str, form: str) -> None:
    assert correlation_id_form(spelled) == form
