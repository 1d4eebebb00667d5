"""The definition a durable node is known by after a restart: its kind, its arguments, who asked for its kind,
and which stream it is.

Settings are not kept: they follow from the arguments and from the policies as they are then, so that
a policy changed while the broker was down holds as if it had been reloaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.errors import OperatorError


@dataclass(frozen=True, slots=True)
class Definition:
    """``capability`` is the kind a client asked for where that is what decided, else empty; ``maker`` is the
    user among whose nodes it is counted, empty for the broker; ``stream_id`` the identity of a stream, 0 for
    a queue, a topic, or a stream that an older version made.
    """

    kind: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    capability: str = ""
    maker: str = ""
    stream_id: int = 0

    def encode(self) -> bytes:
        """As the store keeps it."""
        words: dict[str, object] = {
            "kind": self.kind,
            "arguments": dict(self.arguments),
            "capability": self.capability,
        }
        # Those that are often absent are left out, as in what older versions wrote.
        if self.maker:
            words["maker"] = self.maker
        if self.stream_id:
            words["stream_id"] = self.stream_id
        return json.dumps(words, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def decode(cls, name: str, data: bytes) -> Definition:
        """OperatorError if it isn't one."""
        try:
            words = json.loads(data)
            maker, stream_id = str(words.get("maker", "")), int(words.get("stream_id", 0))
            return cls(
                str(words["kind"]), dict(words["arguments"]), str(words["capability"]), maker, stream_id
            )
        except (ValueError, KeyError, TypeError) as fault:
            raise OperatorError(f"the store's definition of '{name}' can't be read: {fault}") from None
