class FrameGuard:
    lost: bool
    echo: bool
    more: bool
    cost: int
    limit: str
    rare: list[bytes]
    ended: dict[int, tuple[str, str]]
    stolen: set[tuple[int, str, bool]]
    odd: set[tuple[int, str, bool]]
    sourceless: set[tuple[int, str, bool]]
    session_echoes: list[int]
    fault: tuple[str, str] | None
    def bound(
        self,
        first_frame: int,
        most_frame: int,
        most_channels: int,
        most_depth: int,
        most_elements: int,
        most_refused: int,
    ) -> None: ...
    def transfer_count(self, channel: int) -> int: ...
    def position(self) -> tuple[int, bytes]: ...
    def offered(self, channel: int, name: str) -> int: ...
    def window_left(self, channel: int) -> int: ...
    def has_wronged(self) -> bool: ...
    def allow(self, channel: int, transfers: int) -> None: ...
    def wrong(self, channel: int, name: str, peer_sends: bool, refused: bool) -> None: ...
