class Sentry:
    lost: bool
    echo: bool
    rare: list[bytes]
    ended: dict[int, tuple[str, str]]
    stolen: set[tuple[int, str, bool]]
    odd: set[tuple[int, str, bool]]
    session_echoes: list[int]
    fault: tuple[str, str] | None
    def transfer_count(self, channel: int) -> int: ...
    def allow(self, channel: int, transfers: int) -> None: ...
    def wrong(self, channel: int, name: str, peer_sends: bool) -> None: ...
