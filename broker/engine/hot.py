"""A node's settings that are read for every message, as C numbers: ``hot.pxd`` declares them."""

from __future__ import annotations

from typing import cast

from broker.config.node import HOT, HotSettings


class HotNumbers:
    """The attributes of ``HotSettings`` as they were when it was made; settings that change make another."""


def hot_numbers(settings: HotSettings) -> HotSettings:
    """Return the same as C numbers."""
    found = HotNumbers()
    for name in HOT:
        setattr(found, name, getattr(settings, name))
    return cast(HotSettings, found)
