"""Requests to a coordinator are read in each form that their bytes may have, and nothing else for one."""

from __future__ import annotations

import pytest

from broker.codec.transactions import CoordinatorRequest, declare, discharge, parse

VALUE = b"\x00\x53\x77"
DECLARE = b"\x00\x53\x31"
DISCHARGE = b"\x00\x53\x32"


@pytest.mark.parametrize(
    "body",
    [
        DECLARE + b"\x45",
        DECLARE + b"\xc0\x01\x00",
        DECLARE + b"\xc0\x02\x01\x40",
        DECLARE + b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00",
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x31\x45",
        b"\x00\xa3\x11amqp:declare:list\x45",
    ],
)
def test_a_declare(body: bytes) -> None:
    assert parse(VALUE + body) == CoordinatorRequest(True)
    assert parse(b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x77" + body) == CoordinatorRequest(True)


def test_a_declare_behind_other_sections() -> None:
    header = b"\x00\x53\x70\xc0\x02\x01\x41"
    assert parse(header + VALUE + DECLARE + b"\x45") == CoordinatorRequest(True)


def test_a_global_transaction() -> None:
    found = parse(VALUE + DECLARE + b"\xc0\x04\x01\xa0\x01x")
    assert found == CoordinatorRequest(True, is_global=True, name=b"x")
    # An id of another type than bytes.
    found = parse(VALUE + DECLARE + b"\xc0\x04\x01\xa1\x01x")
    assert found == CoordinatorRequest(True, is_global=True)


@pytest.mark.parametrize("name", [b"x", b"c1.17", bytes(200)])
def test_requests_to_another_cell_are_read_as_they_were_written(name: bytes) -> None:
    assert parse(declare(name)) == CoordinatorRequest(True, is_global=True, name=name)
    for fail in (False, True):
        assert parse(discharge(name, fail=fail)) == CoordinatorRequest(False, name=name, fail=fail)


@pytest.mark.parametrize(
    ("fields", "fail"),
    [
        (b"\xc0\x05\x01\xa0\x02t1", False),
        (b"\xc0\x06\x02\xa0\x02t1\x42", False),
        (b"\xc0\x06\x02\xa0\x02t1\x41", True),
        (b"\xc0\x07\x02\xa0\x02t1\x56\x01", True),
        (b"\xc0\x07\x02\xa0\x02t1\x56\x00", False),
        (b"\xc0\x09\x02\xb0\x00\x00\x00\x02t1\x41", True),
    ],
)
def test_a_discharge(fields: bytes, fail: bool) -> None:
    assert parse(VALUE + DISCHARGE + fields) == CoordinatorRequest(False, name=b"t1", fail=fail)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        VALUE,
        VALUE + b"\x40",
        VALUE + b"\xa1\x01x",
        VALUE + b"\x00\x53\x30\x45",
        VALUE + DISCHARGE + b"\x45",
        VALUE + DISCHARGE + b"\xc0\x02\x01\x40",
        VALUE + DISCHARGE + b"\xc0\x05\x01\xa1\x02t1",
        VALUE + DISCHARGE + b"\xc0\x05\x01\xa0\x09t1",
        VALUE + DECLARE + b"\xc0\x09\x01\x40",
        VALUE + DECLARE,
        b"\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x76\x45",
    ],
)
def test_anything_else_is_no_request(message: bytes) -> None:
    assert parse(message) is None
