"""What can go wrong between Spark and a broker, in the broker's words where it gave any.

No text here shows a password. Every class can be pickled: Spark carries some of them from a worker to the
driver.
"""

from __future__ import annotations


class AmqpError(Exception):
    """The connector could not do what it was asked to."""


class OptionError(AmqpError, ValueError):
    """Options that make no sense; the text names each of them."""


class SparkVersionError(AmqpError, ImportError):
    """This PySpark is too old for it; the text names the version that is needed."""


class UnreachableError(AmqpError):
    """No broker of the list could be reached in time."""


class UnansweredError(UnreachableError):
    """The broker is there, and has not answered a question in time."""


class LoginError(AmqpError):
    """The broker doesn't let us in, or isn't who it should be. Trying again helps nobody."""


class RefusedError(AmqpError):
    """The broker refused a connection, a link or a message and said why."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else self.condition


class UnseenError(RefusedError):
    """The user may not see what a node is."""


class CreditTimeoutError(AmqpError):
    """The broker granted no credit for longer than ``creditTimeout``."""


class DataLossError(AmqpError):
    """Offsets that were to be read are gone from their stream; the text names partition and offsets."""


class EncodeError(AmqpError, ValueError):
    """A row that can't be a message; the text names the column."""
