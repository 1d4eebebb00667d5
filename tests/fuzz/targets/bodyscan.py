"""A large message's body as its pieces come: the first byte is how many sizes of pieces follow it."""

from __future__ import annotations

from types import ModuleType

from broker.codec import bodyscan as compiled
from broker.codec import message
from tests.fuzz.mutate import AMQP_WORDS
from tests.fuzz.target import Target, cut, expect
from tests.fuzz.twin import pure

(python,) = pure("broker.codec.bodyscan")


def check(data: bytes) -> None:
    count = data[0] % 8 if data else 0
    sizes, encoded = data[1 : 1 + count], data[1 + count :]
    start = compiled.body_start(encoded)
    expect(start == python.body_start(encoded), "where the body begins differs")
    is_message = message.scan(encoded) >= 0
    if is_message and start >= 0:
        expect(python.code_at(encoded, start, len(encoded)) >= python.BODY_FIRST, "no body begins there")
    whole = _followed(compiled, encoded, ())
    expect(whole == _followed(python, encoded, ()), "compiled and as Python it differs")
    expect(whole == _followed(compiled, encoded, sizes), "in pieces it differs", whole, list(sizes))
    expect(whole == _followed(compiled, encoded, (1,)), "byte by byte it differs", whole)
    if encoded:
        begins_so = encoded[0] == 0 and python.code_at(encoded, 0, len(encoded)) >= python.BODY_FIRST
        expect(whole == (is_message and begins_so), "the scan of a whole message differs", whole)


def _followed(module: ModuleType, encoded: bytes, sizes: bytes | tuple[int, ...]) -> bool:
    body = module.BodyScan()
    # Further bytes after a refusal are nobody's.
    return all(body.feed(piece) for piece in cut(encoded, sizes)) and body.is_whole()


TARGET = Target("bodyscan", check, ("codec/bodyscan.py",), AMQP_WORDS, largest=6000)
