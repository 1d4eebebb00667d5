"""From which level on each logger writes: by the settings, and as operators change it at runtime."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from broker.errors import OperatorError
from broker.loggers import LEVELS, LOGGERS, ROOT, LoggerLevel, known_level, known_logger

log = logging.getLogger(ROOT)


class LogLevels:
    """The levels of the loggers in ``LOGGERS``; libraries' loggers say what is a warning or worse."""

    def configure(self, base: str, own: Iterable[LoggerLevel]) -> None:
        """As the settings say; what was changed at runtime is forgotten."""
        logging.getLogger().setLevel(logging.WARNING)
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.NOTSET)
        log.setLevel(base.upper())
        for each in own:
            logging.getLogger(each.logger).setLevel(each.level.upper())

    def effective(self) -> dict[str, str]:
        """Every logger with the level it writes from."""
        return {name: _level(logging.getLogger(name).getEffectiveLevel()) for name in LOGGERS}

    def change(self, logger: str, level: str) -> dict[str, str]:
        """Until the settings are read again; an empty level is that of `sluice`. All levels afterwards."""
        try:
            name = known_logger(logger)
            number = known_level(level).upper() if level else logging.NOTSET
        except ValueError as fault:
            raise OperatorError(str(fault)) from None
        if name == ROOT and not level:
            raise OperatorError(f"{ROOT} needs a level: {', '.join(LEVELS)}")
        logging.getLogger(name).setLevel(number)
        found = self.effective()
        log.warning("log level of %s is %s now", name, found[name])
        return found


def _level(number: int) -> str:
    return logging.getLevelName(number).lower()
