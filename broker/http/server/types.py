"""Values that the HTTP port is made with."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.http.server.access import Access
from broker.http.server.calls import AskInParts
from broker.manage.model import Model


@dataclass(frozen=True, slots=True)
class Operate:
    """What the API is to work on. Pages of ``origins`` may ask it beside the broker's own; ``access``: who
    may ask.
    """

    model: Model
    ask_in_parts: AskInParts
    origins: tuple[str, ...] = ()
    access: Access = field(default_factory=Access)


@dataclass(frozen=True, slots=True)
class Secured:
    """TLS on the HTTP port. ``context``: that of the next client. ``user``: whom a certificate names,
    empty for nobody; ``failed`` counts a handshake that failed and ``completed`` one that didn't.
    """

    context: Callable[[], ssl.SSLContext]
    user: Callable[[dict[str, Any] | None], str]
    completed: Callable[[str], None]
    failed: Callable[[str], None]
