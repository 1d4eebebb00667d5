"""Frames into a live connection: reactor, sentry, Proton, message path, engine and model, in one process.

The stream is what comes behind the protocol header. It is sent frame by frame, so that the broker answers,
and grants its credit, in between; in the end the peer is gone without a word, and nothing of it may be left.
"""

from __future__ import annotations

import socket

from proton import Data

from broker.amqp.container import Container
from broker.amqp.loop.reactor import Reactor
from broker.amqp.registry import ConnectionRegistry
from broker.config.broker import load_settings
from broker.config.flow import BrokerDefaults
from broker.config.policy_files import parse_policies
from broker.engine.engine import Engine
from broker.manage.model import Model
from broker.manage.process import Process
from broker.security.exchange import ListenerTrust
from tests.fuzz.mutate import AMQP_WORDS, mutate_frames, split_frames
from tests.fuzz.target import Target, expect, without_errors

DOOR = ListenerTrust(loopback=True)
HEADER = b"AMQP\x00\x01\x00\x00"
POLICIES = """
policies:
  - {match: topic, kind: topic}
  - {match: small, max_count: 4, flow_stop_count: 3, overflow: reject}
  - {match: ring, max_count: 2, overflow: ring}
  - {match: letters, max_delivery_count: 2, dead_letter_address: dead}
"""
FLAGS = {"limits.max_message_size": "64 KB", "limits.max_links": 40, "limits.max_sessions": 8}
# Turns after a frame; what is left to do then waits for the next.
TURNS = 2
SETTINGS = load_settings(None, {}, FLAGS)
KNOWN = parse_policies(POLICIES, "policies.yaml")


class World:
    """A broker without a disk, on the calling thread."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.begin_turn(10**9)
        self.engine.limit(16 << 20, 0, 0)
        process = Process(pid=1, started_ns=1, memory=lambda: 1 << 20)
        roster = ConnectionRegistry()
        self.model = Model(self.engine, KNOWN, BrokerDefaults(), roster, process)
        self.engine.letters.find = self.model.nodes.destination
        self.container = Container(self.engine, self.model, roster, SETTINGS)
        self.reactor = Reactor(self.container)

    def turn(self, count: int = 1) -> None:
        """So many turns, none of which waits."""
        for _ in range(count):
            self.reactor.post(_nothing)
            self.reactor.turn()

    def close(self) -> None:
        self.reactor.close()


def check(data: bytes) -> None:
    world = World()
    try:
        with without_errors():
            said = _conversation(world, data)
        expect(not world.reactor.clients, "a connection is left")
        _nothing_left(world)
    finally:
        world.close()
    _well_formed(said)


def _conversation(world: World, data: bytes) -> bytes:
    mine, theirs = socket.socketpair()
    said = b""
    with mine:
        mine.setblocking(False)
        world.reactor.adopt(theirs, "127.0.0.1:1", True, DOOR, _nothing)
        for frame in (HEADER, *split_frames(data)):
            try:
                mine.sendall(frame)
            except OSError:
                break
            world.turn(TURNS)
            said += _heard(mine)
        world.turn(2)
        said += _heard(mine)
    for _ in range(20):
        if not world.reactor.clients:
            break
        world.turn()
    return said


def _heard(sock: socket.socket) -> bytes:
    heard = b""
    while True:
        try:
            piece = sock.recv(1 << 16)
        except OSError:
            return heard
        if not piece:
            return heard
        heard += piece


def _nothing_left(world: World) -> None:
    container = world.container
    expect(not container.peers and not container.lasting, "a peer or a name is left")
    found = world.model.diagnostics.audit()
    expect(not found.breaches, "the books don't agree:", found.breaches)
    for node in world.engine.topology.every_node():
        expect(
            not node.name.startswith("$temporary") or node in container.temporary.orphans,
            "made for a link:",
            node.name,
        )
        links = len(node.consumers) + len(node.browsers)
        expect(links == 0, "a link is left at", node.name)
        expect(node.queue.acquired == 0, "a message is held by nobody at", node.name)


def _well_formed(said: bytes) -> None:
    """What the broker says is frames, whole and of AMQP's types, whatever it was told."""
    at = 8
    while at < len(said):
        size = int.from_bytes(said[at : at + 4], "big")
        expect(8 <= size <= len(said) - at, "a frame of the broker's is cut short", said[at:])
        offset = said[at + 4] * 4
        if size > offset:
            data = Data()
            expect(data.decode(said[at + offset : at + size]) > 0, "a performative that can't be read")
        at += size


def _nothing(*_: object) -> None:
    pass


FILES = (
    *("amqp/links/transport.pyx", "amqp/links/connection.pyx", "amqp/links/pending.pyx"),
    *("amqp/links/assembly.pyx", "amqp/links/producer.pyx", "amqp/links/consumer.pyx"),
    *("amqp/guard/frame_guard.pyx", "amqp/guard/session_rules.pyx", "amqp/guard/session.pyx"),
    *("amqp/guard/outgoing_frames.pyx", "amqp/links/relay.pyx", "amqp/links/sink.pyx"),
    *("amqp/control/connection.py", "amqp/container.py", "amqp/loop/reactor.py"),
    *(
        "amqp/guard/flow_reply.py",
        "amqp/links/filters.py",
        "amqp/control/decoding.py",
        "engine/intake.py",
        "engine/settlement.py",
        "engine/delivery.py",
    ),
    *("queues/queue.py", "queues/dispatch.py"),
)
TARGET = Target(
    "connection",
    check,
    FILES,
    AMQP_WORDS,
    mutate_frames,
    largest=8192,
    short=800,
)
