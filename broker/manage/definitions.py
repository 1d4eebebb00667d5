"""The definition a durable node is known by after a restart: its kind, its arguments, who asked for its kind.

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
    user among whose nodes it is counted, empty for the broker.
    """

    kind: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    capability: str = ""
    maker: str = ""

    def encode(self) -> bytes:
        """As the store keeps it."""
        words = {"kind": self.kind, "arguments": dict(self.arguments), "capability": self.capability}
        if self.maker:
            words["maker"] = self.maker
        return json.dumps(words, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def decode(cls, name: str, data: bytes) -> Definition:
        """OperatorError if it isn't one."""
        try:
            words = json.loads(data)
            maker = str(words.get("maker", ""))  # absent for the broker's, and in what older versions wrote
            return cls(str(words["kind"]), dict(words["arguments"]), str(words["capability"]), maker)
        except (ValueError, KeyError, TypeError) as fault:
            raise OperatorError(f"the store's definition of '{name}' can't be read: {fault}") from None
