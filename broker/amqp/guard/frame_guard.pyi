from broker.amqp.guard.session_rules import SessionRules

class FrameGuard(SessionRules):
    lost: bool
    more: bool
    def bound(
        self,
        first_frame: int,
        most_frame: int,
        most_channels: int,
        most_depth: int,
        most_elements: int,
        most_refused: int,
    ) -> None: ...
    def position(self) -> tuple[int, bytes]: ...
