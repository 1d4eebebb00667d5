"""Reading of new policies, from a text or from the broker's files, on any thread: it may take seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from broker.config.flow import BrokerDefaults
from broker.config.policies import PolicySet
from broker.config.policy_files import parse_policies
from broker.errors import ConflictError, OperatorError
from broker.units import format_size

# Of policies in a request: so much is read in a second or two, and what is more belongs into a file.
LARGEST_TEXT = 256 << 10
# How long a text waits while another one is read: they are read one after the other.
READING_S = 2.0


@dataclass(frozen=True, slots=True)
class Reread:
    """The broker's files as read again; ``take_over``, on the loop's thread, is for all but policies."""

    policies: PolicySet
    defaults: BrokerDefaults
    take_over: Callable[[], None]


class PolicyReader:
    """Reads policies; ``Policies`` applies them. ``on_reload`` reads the broker's files anew."""

    def __init__(self) -> None:
        self.on_reload: Callable[[], Reread] | None = None
        # One for trials: whoever may only see the broker keeps nobody from changing it.
        self._reading = {dry_run: threading.Lock() for dry_run in (True, False)}

    def read_text(self, text: str, file: str, dry_run: bool = False) -> PolicySet:
        """Read the policies of a text in hand.

        ConfigError with all that is wrong in it; OperatorError where it is too large, ConflictError where
        another one is read already.
        """
        if len(text) > LARGEST_TEXT:
            limit = format_size(LARGEST_TEXT)
            raise OperatorError(
                f"{file} is larger than {limit}: put it into the broker's own files and reload"
            )
        reading = self._reading[dry_run]
        if not reading.acquire(timeout=READING_S):
            raise ConflictError("other policies are being read; try again")
        try:
            return parse_policies(text, file)
        finally:
            reading.release()

    def read_again(self) -> Reread:
        """Read settings and policies again. ConfigError or OperatorError with all faults."""
        if self.on_reload is None:
            raise OperatorError("this broker was started without files to read again; name a file to apply")
        return self.on_reload()
