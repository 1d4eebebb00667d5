"""The reasons why a store has no room, and whether that was logged."""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger("sluice.store")


class Shortage:
    """Why there is no room for a next journal ``file``, a ``checkpoint``, a ``reserve`` or messages of
    ``streams``: a text each, empty where there is room.
    """

    def __init__(self, path: Path) -> None:
        self.file = ""
        self.checkpoint = ""
        self.reserve = ""
        self.streams = ""
        self._path = path
        self._logged = False

    def judge(self, journal_full: int) -> str:
        """Return the first reason, empty where there is none; ``journal_full`` is the error of a write that
        waits for room, or 0. It is logged when room runs out and when there is some again.
        """
        full = os.strerror(journal_full) if journal_full else ""
        lacking = full or self.file or self.checkpoint or self.reserve or self.streams
        if lacking and not self._logged:
            log.error("%s: no room: %s; durable nodes grant no credit until there is", self._path, lacking)
        elif not lacking and self._logged:
            log.warning("%s: there is room again", self._path)
        self._logged = bool(lacking)
        return lacking
