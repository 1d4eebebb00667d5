"""Why a link waits, for every reason there is."""

from __future__ import annotations

import pytest

from broker.errors import NotFoundError
from broker.flow.window import Shared
from broker.manage.why.reason import span
from broker.manage.why.why import Why, about
from tests.unit.manage_world import FakePort, World


def only(world: World, name: str = "orders") -> Why:
    [answer] = world.model.diagnostics.why(name)
    return answer


def test_a_count_threshold_with_a_forecast() -> None:
    world = World()
    node = world.queue(flow_stop_count=100, flow_resume_count=50)
    world.fill(node, world.producer(node), 100)
    world.consumer(node, limit=10)
    world.links.receivers.clear()
    node.rate_out = 20.0
    world.at(12)
    answer = only(world)
    assert (answer.subject, answer.cause, answer.link) == ("producer", "flow_stop_count", "s1")
    assert (answer.depth, answer.threshold, answer.resume) == (100, 100, 50)
    assert answer.blocked_s == 12.0
    assert answer.eta_s == pytest.approx(51 / 20)
    assert answer.sentence == (
        "producer link 's1' of 'app' (127.0.0.1:4000) at 'orders' has no credit, for 12.0 s now:"
        " queue 'orders' is stopped by flow_stop_count (100 of 100 messages queued);"
        " it goes on when the depth is below flow_resume_count 50 (51 to go),"
        " in about 2.5 s at the present rate."
    )


def test_a_producers_answer_has_the_terms_of_its_credit() -> None:
    world = World()
    node = world.queue(flow_stop_count=100, flow_resume_count=50)
    world.fill(node, world.producer(node), 100)
    terms = {str(term["name"]): term["msgs"] for term in only(world).terms}
    assert list(terms)[:3] == ["window", "share", "gate"]
    assert terms["window"]
    assert terms["gate"] == 0
    assert terms["memory"] is None


def test_a_budget_without_room_for_all_copies_of_a_message_is_named_though_one_would_fit() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news", {})
    for number in range(50):
        world.subscribe(topic, f"s{number}")
    # For one message to the fifty, and many to one of them.
    world.engine.limit(20_000, 0)
    account = world.producer(topic)
    world.fill(topic, account, 1, size=100)
    world.engine.end_turn()
    answer = only(world, "news")
    assert (answer.subject, answer.cause) == ("producer", "memory_limit")
    assert "the broker's memory_limit is used up" in answer.sentence


def test_a_producers_answer_says_where_its_window_comes_from() -> None:
    world = World()
    node = world.queue(flow_stop_count=49)
    links = [world.producer(node, f"s{number}") for number in range(1, 8)]
    assert links[6].window == 7
    last = only(world, "s7")
    assert last.window.startswith(
        "Its window is 7: it began at 7, flow_stop_count divided by the 7 links there were; it doubles, to"
    )
    assert "it began at 49, flow_stop_count; it doubles" in only(world, "s1").window
    world.producer(world.queue("wide"), "alone")
    assert "its initial_credit; it doubles" in only(world, "alone").window


def test_a_byte_threshold_that_nobody_drains() -> None:
    world = World()
    node = world.queue(
        flow_stop_size="10 KB", flow_resume_size="5 KB", byte_reservation="strict", max_message_size=1024
    )
    world.fill(node, world.producer(node), 10, size=1024)
    answer = only(world)
    assert (answer.cause, answer.eta_s) == ("flow_stop_size", None)
    assert "10 KB of 10 KB queued" in answer.sentence
    assert "nothing leaves it and it has no consumer" in answer.sentence


def test_a_byte_threshold_that_no_further_message_fits_below() -> None:
    """Stop and resume are one, as EMS has it: the gate closes below both."""
    world = World()
    node = world.queue(flow_control="10 KB")
    world.fill(node, world.producer(node), 10, size=1000)
    answer = only(world)
    assert (answer.cause, answer.depth, answer.threshold) == ("flow_stop_size", 10_000, 10_240)
    assert "is stopped by flow_stop_size (9.8 KB of 10 KB queued)" in answer.sentence
    assert answer.frees == "when a message leaves it"


def test_the_forecast_waits_for_the_slower_of_two_units() -> None:
    world = World()
    node = world.queue(flow_stop_count=10, flow_resume_count=9, flow_stop_size=1000, flow_resume_size=100)
    world.put(node, 10, size=90)
    world.producer(node)
    node.rate_out = 1.0
    answer = only(world)
    # 2 messages against 801 bytes of 90 each.
    assert answer.cause == "flow_stop_size"
    assert answer.eta_s == pytest.approx(801 / 90)
    assert "flow_stop_count" in answer.sentence


def test_an_operators_hold_is_the_reason_it_shows() -> None:
    world = World()
    world.producer(world.queue())
    world.model.operators.hold("orders", True)
    world.engine.end_turn()
    answer = only(world)
    assert (answer.cause, answer.eta_s) == ("operator", None)
    assert "stopped by an operator (producers stopped for 'orders')" in answer.sentence
    assert "when an operator starts producers again" in answer.sentence


def test_room_promised_to_others() -> None:
    world = World()
    node = world.queue(flow_stop_count=4)
    for number in range(5):
        world.producer(node, f"s{number}")
    answer = world.model.diagnostics.why("orders")[0]
    assert not node.gate.closed
    assert (answer.subject, answer.cause) == ("producer", "promised")
    promised = "its room is promised to other producers: 0 queued and 4 credits reach flow_stop_count 4"
    assert promised in answer.sentence
    assert "when they use it, or hold more than their share" in answer.sentence


def test_a_message_larger_than_the_room_left() -> None:
    world = World()
    node = world.queue(flow_stop_size="10 KB")
    world.put(node, 50, size=100)
    world.model.operators.hold("orders", True)
    account = world.producer(node)
    account.learned_bytes = 8 * 1024
    world.model.operators.hold("orders", False)
    world.engine.end_turn()
    answer = only(world)
    assert (answer.cause, answer.depth) == ("message_size", 5000)
    assert (
        "its messages of about 8 KB are larger than the 5.1 KB left below flow_stop_size 10 KB"
        in answer.sentence
    )


def test_room_that_the_next_dealing_gives() -> None:
    world = World()
    node = world.queue()
    world.engine.producers.open(node, FakePort(), True)
    world.links.senders.append(("orders", "s1", node.allocator.accounts[0]))
    assert only(world).cause == "turn"


def test_a_topic_waits_for_its_fullest_subscription() -> None:
    world = World()
    topic = world.model.nodes.create("topic", "news", {"flow_stop_count": 3})
    world.subscribe(topic, "news/s1")
    world.fill(topic, world.producer(topic), 3)
    answer = only(world, "news")
    assert answer.node == "news"
    assert "subscription 'news/s1' is stopped by flow_stop_count (3 of 3 messages queued)" in answer.sentence
    assert only(world, "news/s1").sentence == answer.sentence


def test_a_consumer_whose_window_is_full() -> None:
    world = World()
    node = world.queue()
    world.fill(node, world.producer(node), 20)
    world.consumer(node, limit=10)
    node.rate_out = 2.0
    answer = only(world)
    assert (answer.subject, answer.cause, answer.eta_s) == ("consumer", "consumer_flow_limit", 2.5)
    assert "10 messages unsettled, its window (consumer_flow_limit) is 10" in answer.sentence
    assert "when 5 of them are settled" in answer.sentence


def test_a_consumer_whose_connection_is_full() -> None:
    world = World()
    node = world.queue()
    consumer = world.consumer(node)
    consumer.window.shared = Shared(1, lambda window: 0)
    consumer.window.sent()
    assert only(world).cause == "connection_flow_limit"


def test_a_consumer_whose_client_gives_no_credit() -> None:
    world = World()
    node = world.queue()
    world.consumer(node, credit=0)
    assert only(world).subject == "node"
    world.fill(node, world.producer(node), 2)
    answer = only(world)
    assert answer.cause == "credit"
    assert "2 messages are ready" in answer.sentence


def test_a_node_at_which_nobody_waits() -> None:
    world = World()
    node = world.queue(flow_stop_count=10)
    world.fill(node, world.producer(node), 2)
    answer = only(world)
    assert (answer.subject, answer.cause) == ("node", "nothing")
    assert answer.sentence.startswith("queue 'orders' is open, 2 of 10 messages queued (flow_stop_count)")
    assert "no producer waits and no consumer is shut" in answer.sentence


def test_a_node_that_is_stopped_though_nobody_waits() -> None:
    world = World()
    node = world.queue(flow_stop_count=2)
    account = world.producer(node)
    world.fill(node, account, 2)
    world.engine.producers.close(node, account)
    world.links.senders.clear()
    answer = only(world)
    assert (answer.subject, answer.cause) == ("node", "flow_stop_count")
    assert "no producer waits" in answer.sentence


def test_a_link_can_be_asked_for_by_name_or_id() -> None:
    world = World()
    node = world.queue(flow_stop_count=2)
    world.fill(node, world.producer(node, "s1"), 2)
    world.producer(node, "s2")
    assert only(world, "s2").link == "s2"
    assert only(world, "c1/s1").link == "s1"
    world.queue("idle")
    world.producer(world.engine.topology.node("idle"), "s3")
    assert only(world, "s3").sentence.endswith("may send: it has 100 credits of a window of 100.")


def test_a_link_that_lay_idle_may_have_more_credit_than_its_window() -> None:
    world = World()
    world.producer(world.queue(), "s1").window = 1
    told = "may send: it has 100 credits, and a window of 1 now, since it lay idle."
    assert only(world, "s1").sentence.endswith(told)


def test_what_does_not_exist_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        World().model.diagnostics.why("nobody")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (119.0, "119.0 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min")]
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KB"),
        (1500, "1.5 KB"),
        (80 << 20, "80 MB"),
        ((80 << 20) + 7, "80.0 MB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert about(size) == text


def test_keys_that_keep_the_gate_of_a_last_value_queue_closed() -> None:
    world = World()
    node = world.queue(last_value_key="share", flow_stop_count=4, flow_resume_count=2)
    hint = "set flow_stop_count and flow_resume_count above the number of keys."
    for number in range(4):
        node.last_values.append(b"\x00\x53\x74\xc1\x0b\x02\xa1\x05share\xa1\x01%c" % (97 + number))  # type: ignore[union-attr]
    assert hint not in only(world).sentence
    world.fill(node, world.producer(node), 4)
    answer = only(world)
    assert answer.cause == "flow_stop_count"
    assert "The queue keeps the last value of 4 keys" in answer.sentence
    assert answer.sentence.endswith(hint)
