"""The numbers that the message path shares with Proton."""

from __future__ import annotations

import re

import cproton_ffi
import pytest

from tests.imports import ROOT

TEXT = (ROOT / "broker/amqp/links/proton.pxd").read_text()


@pytest.mark.parametrize("name", ["RECEIVED", "ACCEPTED", "REJECTED", "RELEASED", "MODIFIED"])
def test_delivery_states_are_protons(name: str) -> None:
    (code,) = re.findall(rf"STATE_{name} = (0x\d\d)", TEXT)
    assert int(code, 16) == getattr(cproton_ffi.lib, f"PN_{name}")
