"""What tests of authentication share: users, and a client's side of each exchange."""

from __future__ import annotations

from scramp import ScramClient  # type: ignore[import-untyped]

from broker.codec import sasl
from broker.codec.sasl import AMQP_HEADER, SASL_HEADER
from broker.config.security import MECHANISMS
from broker.security.authentication import Authentication
from broker.security.users import FEWEST, KEPT, User, Users, make_verifier

PASSWORD = "correct horse"
# An open with nothing but a container-id.
OPEN = b"\x00\x00\x00\x11\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01x"


def a_user(name: str, password: str = PASSWORD, **more: frozenset[str]) -> User:
    verifiers = {kind: make_verifier(password, kind, FEWEST) for kind in (*KEPT, "SCRAM-SHA-1")}
    return User(name, verifiers, **more)


def some_users(**passwords: str) -> Users:
    found = {name: a_user(name, password) for name, password in passwords.items()}
    found["proxy"] = a_user("proxy", acts_as=frozenset({"alice"}))
    found["alice"] = a_user("alice", groups=frozenset({"writers"}))
    return Users(found, b"s" * 32, FEWEST)


def with_users(**settings: object) -> Authentication:
    """Everything switched on, so that a test chooses by the mechanism it takes."""
    given = {"users": some_users(), "mechanisms": MECHANISMS, "plain_without_tls": True} | settings
    return Authentication(**given)  # type: ignore[arg-type]


def plain(user: str, password: str = PASSWORD, other: str = "") -> bytes:
    return f"{other}\0{user}\0{password}".encode()


def frames(data: bytes) -> list[tuple[int, list[bytes | None]]]:
    """SASL's frames that were sent, headers left out: each one's code and its binary fields."""
    found = []
    while data:
        if data.startswith((SASL_HEADER, AMQP_HEADER)):
            data = data[8:]
            continue
        size = int.from_bytes(data[:4], "big")
        body = data[8:size]
        code_and_places = sasl.performative(body)
        assert code_and_places is not None, body
        code, places = code_and_places
        found.append((code, [sasl.binary(body, place) for place in places]))
        data = data[size:]
    return found


def outcome_of(data: bytes) -> int:
    """The code of the outcome that is the last frame."""
    size = len(data)
    while data:
        if data.startswith((SASL_HEADER, AMQP_HEADER)):
            data = data[8:]
            continue
        size = int.from_bytes(data[:4], "big")
        frame, data = data[:size], data[size:]
    body = frame[8:]
    found = sasl.performative(body)
    assert found is not None
    assert found[0] == sasl.OUTCOME
    return body[found[1][0][0] + 1]


class ScramSide:
    """A client of SCRAM, message by message."""

    def __init__(self, user: str, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256") -> None:
        self.mechanism = mechanism
        self._client = ScramClient([mechanism], user, password)

    def first(self) -> bytes:
        return str(self._client.get_client_first()).encode()

    def final(self, server_first: bytes) -> bytes:
        self._client.set_server_first(server_first.decode())
        return str(self._client.get_client_final()).encode()

    def check(self, server_final: bytes) -> None:
        self._client.set_server_final(server_final.decode())
