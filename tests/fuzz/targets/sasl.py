"""A peer's bytes before it has authenticated, where every mechanism is offered.

The first byte says how the rest is read. Even: bytes of a peer, in pieces; bits 1 to 3 are how many sizes of
pieces follow, the highest bit whether a client may begin without SASL. Odd: a client of SCRAM that knows the
password, and what is changed in its messages.
"""

from __future__ import annotations

import base64

from broker.amqp.control.sasl import AMQP_HEADER, MAX_FRAME, SASL_HEADER, Handshake
from broker.codec import sasl
from broker.codec.scram import ScramClient
from broker.config.security import MECHANISMS
from broker.security.authentication import Authentication
from broker.security.exchange import Accepted, ListenerTrust, Refused
from broker.security.users import HASHES, User, Users, make_verifier
from tests.fuzz.mutate import AMQP_WORDS, havoc, mutate_frames
from tests.fuzz.target import Target, cut, expect, with_prefix

USER, PASSWORD = "alice", "wonderland"
# Few, for speed: how many they are is no input's matter.
ROUNDS = 4
USERS = Users(
    {
        USER: User(
            USER, {name: make_verifier(PASSWORD, name, ROUNDS) for name in HASHES}, acts_as=frozenset({"bob"})
        ),
        "bob": User("bob"),
    },
    secret=bytes(32),
)
OPEN = Authentication(USERS, None, True, MECHANISMS, plain_without_tls=True)
CLOSED = Authentication(USERS, None, False, MECHANISMS)
DOOR = ListenerTrust(loopback=True, secure=True, external_user=USER)
WORDS = (
    *AMQP_WORDS,
    *(sasl.SASL_HEADER, AMQP_HEADER, b"\x00\x53\x41\xc0", b"\x00\x53\x43\xc0"),
    *(b"\xa3" + bytes((len(name),)) + name.encode() for name in MECHANISMS),
    *(
        b"\0alice\0wonderland",
        b"bob\0alice\0wonderland",
        b"n,,n=alice,r=abc",
        b"y,,n=",
        b"n,a=bob,n=alice,r=x",
    ),
    *(b"c=biws,r=", b",p=", b"p=tls-unique,,", b"n=bob=2C=3D", b"m=ext,", b"\xc2\xa0", b"\xe2\x85\xa3"),
)


def check(data: bytes) -> None:
    first = data[0] if data else 0
    if first % 2:
        _scram(data[1:])
        return
    count = (first >> 1) % 8
    sizes, stream = data[1 : 1 + count], data[1 + count :]
    whole = _shaken(stream, (), first >= 128)
    expect(whole == _shaken(stream, sizes, first >= 128), "in pieces it differs", whole, list(sizes))
    expect(whole == _shaken(stream, (1,), first >= 128), "byte by byte it differs", whole)


def _shaken(stream: bytes, sizes: bytes | tuple[int, ...], allow_plain: bool) -> object:
    handshake = Handshake(allow_plain, OPEN if allow_plain else CLOSED, DOOR)
    said = b""
    for piece in cut(stream, sizes):
        if handshake.done or handshake.failed:
            break
        said += _fed(handshake, piece)
        expect(not (handshake.done and handshake.failed), "both done and failed")
        if not handshake.done and not handshake.failed:
            expect(len(handshake._buffer) <= MAX_FRAME, "more is kept than a frame may have")
    if handshake.done:
        expect(handshake.rest.startswith(AMQP_HEADER), "AMQP begins without its header")
        expect(
            handshake.user in ("anonymous", USER, "bob"), "somebody nobody knows came through", handshake.user
        )
        # A client that began without SASL did so where it may; and nobody is anonymous where that isn't
        # allowed.
        expect(allow_plain or said != b"", "AMQP began although SASL had not")
        expect(allow_plain or handshake.user != "anonymous", "nobody in particular came through")
    # Why it failed may be seen in a header's first bytes or in all of them; a challenge holds a number by
    # chance.
    return handshake.state, bool(handshake.failed), handshake.user, len(said)


def _fed(handshake: Handshake, piece: bytes) -> bytes:
    said = handshake.feed(piece)
    while handshake.work is not None:
        result = handshake.work.run()
        expect(isinstance(result, Accepted | Refused), "work that comes to nothing")
        said += handshake.resume(result)
    return said


class _Believer(ScramClient):
    """A client that checks nothing, so that it has a proof for messages that were changed as well."""

    def _read(self, challenge: bytes) -> tuple[str, bytes, int]:
        fields = dict(each.split("=", 1) for each in challenge.decode().split(","))
        return fields["r"], base64.b64decode(fields["s"]), int(fields["i"])


def _scram(data: bytes) -> None:
    """Whoever gets in said its first message as it was made, and proved that it knows the password."""
    mechanism = tuple(HASHES)[(data[0] if data else 0) % 3]
    client = _Believer(mechanism, USER, PASSWORD, nonce="fyko+d2lbbFgONRv9qkxdawL")
    handshake = Handshake(False, CLOSED, DOOR)
    first = _changed(client.first(), data[1:], 0)
    handshake.feed(SASL_HEADER)
    asked = handshake.feed(sasl.init(mechanism, first)[: 2 * MAX_FRAME])
    if handshake.failed or handshake.state != "response":
        return
    place = sasl.performative(asked[8:])
    assert place is not None
    whole = client.answer(sasl.binary(asked[8:], place[1][0]) or b"")
    final = _changed(whole, data[1:], 1)
    handshake.feed(sasl.response(final))
    if handshake.identity is not None:
        expect(handshake.identity.user == USER, "somebody else than had the password", handshake.identity)
        expect(first[3:] == client.first()[3:], "a first message that was changed", first)
        expect(final.startswith(b"c=biws,"), "a final message without its binding", final)
    else:
        expect((first, final) != (client.first(), whole), "who knows the password is refused")


def _changed(message: bytes, changes: bytes, which: int) -> bytes:
    """Each change is three bytes: of which message, where, and what stands there (0: nothing, the rest
    goes)."""
    for at in range(0, len(changes) - 2, 3):
        if changes[at] % 2 == which:
            place, byte = changes[at + 1] % (len(message) + 1), changes[at + 2]
            mode = changes[at] >> 1 & 3
            behind = message[place + (mode != 1) :]
            message = message[:place] + (bytes((byte,)) if mode < 2 else b"") + (behind if mode != 3 else b"")
    return message


TARGET = Target(
    "sasl",
    check,
    (
        *("amqp/control/sasl.py", "codec/sasl.py", "security/scram.py", "security/simple.py"),
        *("security/authentication.py", "security/users.py"),
    ),
    WORDS,
    with_prefix(mutate_frames, havoc),
    largest=2048,
    short=3000,
)  # fmt: skip
