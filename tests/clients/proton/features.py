"""Every feature of ../README.md, on whatever scene the program has."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from proton import Described, Message, symbol, ulong

from tests.clients.proton.scene import (
    Failure,
    NotApplicable,
    Refused,
    Scene,
    expect,
    pause,
    refused,
    send,
    silent,
    take,
)
from tests.clients.proton.terminus import Asks

SELECTOR = 0x0000468C00000004
LASTING = Asks(lasting=True)


def send_receive(scene: Scene, p: str) -> None:
    connection = scene.open()
    send(connection.sender(f"{p}.plain"), *range(100))
    expect("the messages", list(range(100)), take(connection.receiver(f"{p}.plain"), 100))


def presettled(scene: Scene, p: str) -> None:
    connection = scene.open()
    sender = connection.sender(f"{p}.presettled", Asks(settled=True))
    for number in range(100):
        sender.send(Message(body=number))
    receiver = connection.receiver(f"{p}.presettled", Asks(settled=True))
    bodies = [message.body for message in iter(lambda: receiver.next(1.0), None)]
    expect("the messages", list(range(100)), bodies)


def blocked(scene: Scene, p: str) -> None:
    sending, receiving = scene.open(), scene.open()
    sender = sending.sender(f"{p}.small")
    send(sender, *range(10))
    expect("an eleventh accepted", False, sender.send(Message(body=10), 0.5))
    receiver = receiving.receiver(f"{p}.small")
    expect("seven", list(range(7)), take(receiver, 7))
    expect("a twelfth accepted", True, sender.send(Message(body=11), 5.0))
    expect("the rest", [7, 8, 9, 10, 11], take(receiver, 5))


def credit(scene: Scene, p: str) -> None:
    connection = scene.open()
    send(connection.sender(f"{p}.credit"), *range(10))
    first = connection.receiver(f"{p}.credit", name="first", credit=3)
    second = scene.open().receiver(f"{p}.credit", name="second", credit=10)
    expect("of the other", 7, len(take(second, 7)))
    silent(second)
    for number in range(3):
        message = first.next()
        expect("of the first", number, None if message is None else message.body)
    silent(first)


def outcomes(scene: Scene, p: str) -> None:
    connection = scene.open()
    sender = connection.sender(f"{p}.outcomes")
    receiver = connection.receiver(f"{p}.outcomes", credit=1)
    for how, again in (("released", 0), ("rejected", None), ("modified", 1)):
        send(sender, how)
        expect(how, how, getattr(receiver.next(), "body", None))
        receiver.settle(how)
        message = receiver.next(0.5 if again is None else 5.0)
        expect(f"delivery-count after {how}", again, None if message is None else message.delivery_count)
        if message is not None:
            receiver.settle("accepted")


def redelivery(scene: Scene, p: str) -> None:
    closing = scene.open()
    send(closing.sender(f"{p}.redelivery"), "again")
    expect("at first", "again", getattr(closing.receiver(f"{p}.redelivery", credit=1).next(), "body", None))
    closing.close()
    message = scene.open().receiver(f"{p}.redelivery").next()
    expect("delivery-count", 1, None if message is None else message.delivery_count)


def acknowledge(scene: Scene, p: str) -> None:
    connection = scene.open()
    send(connection.sender(f"{p}.ack"), *range(5))
    receiver = connection.receiver(f"{p}.ack")
    expect("five", list(range(5)), [getattr(receiver.next(), "body", None) for _ in range(5)])
    for _ in range(5):
        receiver.settle("accepted")
    connection.close()
    silent(scene.open().receiver(f"{p}.ack"))


def reply(scene: Scene, p: str) -> None:
    asking, answering = scene.open(), scene.open()
    replies = asking.receiver(None, dynamic=True)
    requests = answering.receiver(f"{p}.requests")
    send(asking.sender(f"{p}.requests"), "who", reply_to=replies.address, correlation_id="7")
    request = requests.next()
    if request is None:
        raise Failure("the request did not come")
    requests.settle("accepted")
    send(answering.sender(request.reply_to), "me", correlation_id=request.correlation_id)
    answer = replies.next()
    expect("the reply", ("me", "7"), (getattr(answer, "body", None), getattr(answer, "correlation_id", None)))
    asking.close()
    pause(0.2)
    refused("amqp:not-found", lambda: scene.open().sender(request.reply_to))


def temporary_topic(scene: Scene, p: str) -> None:
    connection = scene.open()
    first = connection.receiver(None, Asks(("temporary-topic",)), dynamic=True)
    second = connection.receiver(first.address)
    send(connection.sender(first.address), "both")
    expect("both receivers", [["both"], ["both"]], [take(first, 1), take(second, 1)])


def relay(scene: Scene, p: str) -> None:
    connection = scene.open()
    sender = connection.sender(None)
    for name in ("relay1", "relay2"):
        send(sender, name, address=f"{p}.{name}")
    for name in ("relay1", "relay2"):
        expect(name, [name], take(connection.receiver(f"{p}.{name}"), 1))


def queue_capability(scene: Scene, p: str) -> None:
    asks = Asks(("queue",))
    one, other = (scene.open().receiver(f"{p}.made.queue", asks, credit=5) for _ in range(2))
    send(scene.open().sender(f"{p}.made.queue", asks), *range(10))
    expect("shared", list(range(10)), sorted(take(one, 5) + take(other, 5)))


def topic_capability(scene: Scene, p: str) -> None:
    asks = Asks(("topic",))
    one, other = (scene.open().receiver(f"{p}.made.topic", asks) for _ in range(2))
    send(scene.open().sender(f"{p}.made.topic", asks), 1, 2)
    expect("each", [[1, 2], [1, 2]], [take(one, 2), take(other, 2)])


def prefixes(scene: Scene, p: str) -> None:
    connection = scene.open()
    send(connection.sender(f"queue://{p}.prefixed"), "queue")
    expect("from the queue", ["queue"], take(connection.receiver(f"{p}.prefixed"), 1))
    receiver = connection.receiver(f"/{p}.news.prefixed")
    send(connection.sender(f"topic://{p}.news.prefixed"), "topic")
    expect("from the topic", ["topic"], take(receiver, 1))


def topic(scene: Scene, p: str) -> None:
    sender = scene.open().sender(f"{p}.news.all")
    send(sender, "before")
    receivers = [scene.open().receiver(f"{p}.news.all") for _ in range(2)]
    send(sender, *range(10))
    for receiver in receivers:
        expect("each receiver", list(range(10)), take(receiver, 10))


def wildcard(scene: Scene, p: str) -> None:
    connection = scene.open()
    european = connection.receiver(f"{p}.news.eu.*")
    all_of_it = scene.open().receiver(f"{p}.news.>")
    send(connection.sender(f"{p}.news.us.ny"), "ny")
    send(connection.sender(f"{p}.news.eu.fr"), "fr")
    expect("eu.*", ["fr"], take(european, 1))
    expect(">", ["ny", "fr"], take(all_of_it, 2))
    silent(european)


def durable_subscription(scene: Scene, p: str) -> None:
    address, container = f"{p}.news.durable", f"{p}-durable"
    sender = scene.open().sender(address)

    def subscribed() -> tuple[object, object]:
        connection = scene.open(container)
        return connection, connection.receiver(address, LASTING, f"{p}-sub")

    connection, receiver = subscribed()
    receiver.detach()  # type: ignore[attr-defined]
    connection.close()  # type: ignore[attr-defined]
    send(sender, "meanwhile")
    connection, receiver = subscribed()
    expect("after coming back", ["meanwhile"], take(receiver, 1))  # type: ignore[arg-type]
    receiver.close()  # type: ignore[attr-defined]
    connection.close()  # type: ignore[attr-defined]
    send(sender, "between")
    connection, receiver = subscribed()
    silent(receiver)  # type: ignore[arg-type]
    receiver.close()  # type: ignore[attr-defined]


def shared_subscription(scene: Scene, p: str) -> None:
    connection = scene.open()
    names = (f"{p}-shared|volatile1", f"{p}-shared|volatile2")
    one, other = (
        connection.receiver(f"{p}.news.shared", Asks(("shared",)), name, credit=5) for name in names
    )
    send(connection.sender(f"{p}.news.shared"), *range(10))
    expect("divided", list(range(10)), sorted(take(one, 5) + take(other, 5)))


def shared_durable(scene: Scene, p: str) -> None:
    address, asks = f"{p}.news.shared", Asks(("shared",), lasting=True)
    connections = [scene.open(f"{p}-shared-durable") for _ in range(2)]
    receivers = [each.receiver(address, asks, f"{p}-sd", credit=5) for each in connections]
    sender = scene.open().sender(address)
    send(sender, *range(10))
    expect("divided", list(range(10)), sorted(take(receivers[0], 5) + take(receivers[1], 5)))
    for receiver, connection in zip(receivers, connections, strict=True):
        receiver.detach()
        connection.close()
    send(sender, "kept")
    again = scene.open(f"{p}-shared-durable").receiver(address, asks, f"{p}-sd")
    expect("kept", ["kept"], take(again, 1))
    again.close()


def browse(scene: Scene, p: str) -> None:
    connection = scene.open()
    send(connection.sender(f"{p}.browse"), *range(5))
    for name in ("once", "twice"):
        browser = connection.receiver(f"{p}.browse", Asks(copy=True), name)
        expect(name, list(range(5)), take(browser, 5))
        silent(browser)
    expect("a consumer", list(range(5)), take(connection.receiver(f"{p}.browse"), 5))


def _selected(text: str) -> Asks:
    return Asks(filters={"jms-selector": Described(ulong(SELECTOR), text)})


def selector(scene: Scene, p: str) -> None:
    connection = scene.open()
    receiver = connection.receiver(f"{p}.selected", _selected("colour = 'red' AND weight > 10"), "chooses")
    sender = connection.sender(f"{p}.selected")
    for colour, weight in (("red", 5), ("red", 20), ("blue", 20)):
        send(sender, f"{colour} {weight}", properties={"colour": colour, "weight": weight})
    expect("selected", ["red 20"], take(receiver, 1))
    silent(receiver)
    expect("the others", ["red 5", "blue 20"], take(connection.receiver(f"{p}.selected", name="all"), 2))


def bad_selector(scene: Scene, p: str) -> None:
    connection = scene.open()
    refused(
        "amqp:invalid-field", lambda: connection.receiver(f"{p}.selected", _selected("colour = = 3"), "bad")
    )


def no_local(scene: Scene, p: str) -> None:
    here, there = scene.open(), scene.open()
    asks = Asks(filters={"no-local": Described(symbol("apache.org:no-local-filter:list"), [])})
    receiver = here.receiver(f"{p}.news.local", asks)
    send(here.sender(f"{p}.news.local"), "mine")
    send(there.sender(f"{p}.news.local"), "theirs")
    expect("what another publishes", ["theirs"], take(receiver, 1))
    silent(receiver)


def exclusive(scene: Scene, p: str) -> None:
    connection = scene.open()
    connection.receiver(f"{p}.exclusive", name="first")
    refused("amqp:resource-locked", lambda: connection.receiver(f"{p}.exclusive", name="second"))


def single_active(scene: Scene, p: str) -> None:
    connection = scene.open()
    first = scene.open().receiver(f"{p}.single")
    second = scene.open().receiver(f"{p}.single")
    sender = connection.sender(f"{p}.single")
    send(sender, 1, 2)
    expect("the first", [1, 2], take(first, 2))
    silent(second)
    first.close()
    send(sender, 3)
    expect("the second", [3], take(second, 1))


def expiry(scene: Scene, p: str) -> None:
    connection = scene.open()
    sender = connection.sender(f"{p}.expiry")
    send(sender, "short", ttl=0.2)
    send(sender, "long")
    pause(0.6)
    expect("what is left", ["long"], take(connection.receiver(f"{p}.expiry"), 1))


def priority(scene: Scene, p: str) -> None:
    connection = scene.open()
    sender = connection.sender(f"{p}.priority")
    send(sender, "high", priority=7)
    send(sender, "usual")
    receiver = connection.receiver(f"{p}.priority")
    found = {message.body: message.priority for message in (receiver.next(), receiver.next()) if message}
    expect("priorities", {"high": 7, "usual": 4}, found)


def large(scene: Scene, p: str) -> None:
    connection = scene.open()
    body = os.urandom(1 << 20) * 20
    send(connection.sender(f"{p}.large"), body)
    message: Any = connection.receiver(f"{p}.large").next(15.0)
    if message is None or bytes(message.body) != body:
        raise Failure("20 MiB did not arrive as they were")


def not_found(scene: Scene, p: str) -> None:
    connection = scene.open()
    refused("amqp:not-found", lambda: connection.sender(f"{p}.closed.nowhere"))
    refused("amqp:not-found", lambda: connection.receiver(f"{p}.closed.nowhere"))


def drain(scene: Scene, p: str) -> None:
    connection = scene.open()
    send(connection.sender(f"{p}.drain"), 1, 2, 3)
    receiver = connection.receiver(f"{p}.drain", credit=10)
    expect("credit after the drain", 0, receiver.drain())
    expect("what there was", [1, 2, 3], take(receiver, 3))


def reattach(scene: Scene, p: str) -> None:
    connection = scene.open()
    sender = connection.sender(f"{p}.reattach", name="again")
    send(sender, 1)
    sender.detach()
    send(connection.sender(f"{p}.reattach", name="again"), 2)
    expect("both", [1, 2], take(connection.receiver(f"{p}.reattach"), 2))


def idle(scene: Scene, p: str) -> None:
    connection = scene.open(idle_s=1.0)
    receiver = connection.receiver(f"{p}.idle")
    silent(receiver, 3.0)
    send(connection.sender(f"{p}.idle"), "still here")
    expect("after 3 s", ["still here"], take(receiver, 1))


def websocket(scene: Scene, p: str) -> None:
    raise NotApplicable("Proton has no WebSocket transport")


FEATURES: dict[str, Callable[[Scene, str], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(send_receive, presettled, blocked, credit, outcomes, redelivery, acknowledge, reply),
        *(temporary_topic, relay, queue_capability, topic_capability, prefixes, topic, wildcard),
        *(durable_subscription, shared_subscription, shared_durable, browse, selector, bad_selector),
        *(no_local, exclusive, single_active, expiry, priority, large, not_found, drain, reattach),
        *(idle, websocket),
    )
}
__all__ = ["FEATURES", "Refused"]
