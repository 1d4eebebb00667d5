"""The number of cells, as it is written."""

from __future__ import annotations

import pytest

from broker.config.broker import load_settings
from broker.errors import ConfigError


@pytest.mark.parametrize(("given", "cells"), [("1", 1), ("4", 4), (64, 64), ("auto", 0)])
def test_a_number_or_auto(given: object, cells: int) -> None:
    assert load_settings(None, {}, {"cells": given}).cells == cells
    assert load_settings(None, {"SLUICE_CELLS": str(given)}, {}).cells == cells


@pytest.mark.parametrize("given", ["0", 65, "all", True, "-1"])
def test_nothing_else(given: object) -> None:
    with pytest.raises(ConfigError, match="expected a number from 1 to 64, or auto"):
        load_settings(None, {}, {"cells": given})
