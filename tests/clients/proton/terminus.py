"""What a link asks for, as Proton's link options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proton import Link, Terminus, symbol
from proton.reactor import LinkOption


@dataclass
class Asks(LinkOption):
    """A terminus and settle modes as a feature wants them."""

    capabilities: tuple[str, ...] = ()
    lasting: bool = False
    copy: bool = False
    settled: bool = False
    filters: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, link: Link) -> None:
        """Before the link is opened."""
        terminus = link.target if link.is_sender else link.source
        if self.capabilities:
            terminus.capabilities.put_object([symbol(each) for each in self.capabilities])
        if self.lasting:
            terminus.durability = Terminus.DELIVERIES
            terminus.expiry_policy = Terminus.EXPIRE_NEVER
        if self.copy:
            terminus.distribution_mode = Terminus.DIST_MODE_COPY
        if self.settled:
            link.snd_settle_mode = Link.SND_SETTLED
        if self.filters:
            terminus.filter.put_object({symbol(key): value for key, value in self.filters.items()})
