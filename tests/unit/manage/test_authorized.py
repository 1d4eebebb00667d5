"""The model's verbs under rules: each asks before it looks, and lists hold what one may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message

from broker.amqp.management import ManagementNode
from broker.amqp.operations import OPERATIONS
from broker.config.flow import BrokerDefaults
from broker.config.policies import PolicySet
from broker.errors import (
    ConflictError,
    ForbiddenError,
    LimitError,
    NotFoundError,
    OperatorError,
)
from broker.manage.access import INTERNAL, MOST_DECISIONS, AccessControl
from broker.manage.attributes import PREFIX, ROWS
from broker.manage.authorized import AuthorizedModel
from broker.manage.policy_reader import Reread
from broker.manage.subscriptions import SubscriptionKey
from broker.manage.tracing import TraceRequest
from broker.manage.views import ConsumerView
from broker.security.acl import Action
from broker.security.identity import ANONYMOUS, Identity
from broker.security.rules import parse_acl
from tests.unit.manage_world import World, finished

ALICE, BOB, CAROL, NOBODY = (Identity(name) for name in ("alice", "bob", "carol", "nobody"))
QUEUE, TOPIC = PREFIX + "queue", PREFIX + "topic"
RULES = """\
rules:
  - allow: all
    users: [alice]
    addresses: ["a.#"]
  - allow: manage-read
    users: [bob]
  - allow: manage-write
    users: [alice]
    addresses: [$broker]
  - allow: backup
    users: [carol]
    addresses: [$broker]
  - allow: connect
"""


@pytest.fixture
def world() -> World:
    found = World("policies:\n  - match: 'a.news'\n    kind: topic\n  - match: 'b.news'\n    kind: topic\n")
    for name in ("a.one", "a.two", "b.one"):
        found.queue(name)
    found.model.nodes.create("topic", "a.news")
    found.model.nodes.create("topic", "b.news")
    found.model.authority.replace(parse_acl(RULES, "acl.yaml"), ())
    return found


def is_forbidden(attempt: Callable[[], object]) -> bool:
    """Whether it is refused for want of a right, and not for another reason or not at all."""
    try:
        attempt()
    except ForbiddenError:
        return True
    except OperatorError:
        return False
    return False


def act(world: World, identity: Identity = ALICE) -> AuthorizedModel:
    return AuthorizedModel(world.model, identity)


DEAD = "dead_letter_address"
# Everything that takes a name, as done to a queue `NAME`.
VERBS: dict[str, Callable[[AuthorizedModel, str], object]] = {
    "create": lambda model, name: model.nodes.create("queue", name),
    "update": lambda model, name: model.nodes.update(name, {"max_count": 5}),
    "delete": lambda model, name: model.nodes.delete(name),
    "find": lambda model, name: model.nodes.find(name),
    "typed": lambda model, name: model.nodes.typed("queue", name),
    "bind source": lambda model, name: model.nodes.bind(name, "a.one"),
    "bind target": lambda model, name: model.nodes.bind("a.news", name),
    "unbind": lambda model, name: model.nodes.unbind("a.news", name),
    "bridge from": lambda model, name: model.bridges.create("x", {"from": name, "to": "a.one"}),
    "bridge to": lambda model, name: model.bridges.create(f"a.one->{name}", {}),
    "unbridge": lambda model, name: model.bridges.delete(f"{name}->a.one"),
    "purge": lambda model, name: model.messages.purge(name),
    "count": lambda model, name: model.messages.purge(name, dry_run=True),
    "move from": lambda model, name: model.messages.move(name, "a.one"),
    "move to": lambda model, name: model.messages.move("a.one", name),
    "try to move": lambda model, name: model.messages.move("a.one", name, dry_run=True),
    "browse": lambda model, name: model.messages.browse(name),
    "hold": lambda model, name: model.operators.hold(name, True),
    "explain": lambda model, name: model.explanations.explain(name),
    "effect": lambda model, name: model.explanations.effect(name, {"max_count": 5}),
    "history": lambda model, name: model.queries.history(name, 5),
    "why": lambda model, name: model.diagnostics.why(name),
    "read": lambda model, name: model.queries.read(QUEUE, name),
    "dead letters": lambda model, name: model.nodes.update("a.one", {DEAD: name}),
    "dead letters of a new one": lambda model, name: model.nodes.create("queue", "a.x", {DEAD: name}),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_refusal_doesnt_tell_what_there_is(world: World, verb: str) -> None:
    told = []
    for name in ("b.one", "b.gone"):
        with pytest.raises(ForbiddenError) as refused:
            VERBS[verb](act(world), name)
        told.append(str(refused.value).replace(name, "NAME"))
    assert told[0] == told[1]
    assert told[0].startswith("user 'alice' may not ")


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_refused_changes_nothing(world: World, verb: str) -> None:
    before = {name: (node.settings, node.gate.held) for name, node in world.engine.topology.nodes.items()}
    for name in ("b.one", "b.gone", "a.gone"):
        with pytest.raises(ForbiddenError):
            VERBS[verb](act(world, NOBODY), name)
    assert {
        name: (node.settings, node.gate.held) for name, node in world.engine.topology.nodes.items()
    } == before
    assert world.model.bridges.views() == []


@pytest.mark.parametrize("verb", VERBS)
def test_with_the_right_it_is_the_models(world: World, verb: str) -> None:
    """Done, or refused for a reason of the model's own."""
    for who, name in ((ALICE, "a.two"), (INTERNAL, "b.one")):
        assert not is_forbidden(lambda who=who, name=name: VERBS[verb](act(world, who), name))  # type: ignore[misc]


REREAD = Reread(PolicySet(), BrokerDefaults(), lambda: None)
WHOLE: dict[str, Callable[[AuthorizedModel], object]] = {
    "read to apply": lambda model: model.policy_reader.read_text("policies: []", "x", False),
    "apply": lambda model: finished(model.policies.apply_in_parts(PolicySet())),
    "read again": lambda model: model.policy_reader.read_again(),
    "reload": lambda model: finished(model.policies.reload_in_parts(REREAD)),
    "close": lambda model: model.operators.close_connection("c1"),
    "detach": lambda model: model.operators.detach_link("c1.1"),
    "level": lambda model: model.log_levels.change("sluice.http", "error"),
    "trace": lambda model: model.tracing.order(TraceRequest("c1")),
    "hold all": lambda model: model.operators.hold(None, True),
    "move cell": lambda model: model.cluster.move(""),
    "move node": lambda model: model.cells.move("b.one", 1),
}
COPIED: dict[str, Callable[[AuthorizedModel], object]] = {
    "backup": lambda model: model.backups.begin("there"),
    "backup done": lambda model: model.backups.is_done(),
}
SEEN: dict[str, Callable[[AuthorizedModel], object]] = {
    "read to try": lambda model: model.policy_reader.read_text("policies: []", "x", True),
    "try": lambda model: finished(model.policies.try_in_parts(PolicySet())),
    "levels": lambda model: model.log_levels.effective(),
    "cell": lambda model: model.cluster.status(),
    "moved": lambda model: model.cells.moved("b.one"),
    "audit": lambda model: model.diagnostics.audit(),
    "events": lambda model: model.diagnostics.events(5),
    "holds": lambda model: model.operators.holds(),
    "deadlocks": lambda model: model.diagnostics.deadlocks(),
    "broker": lambda model: finished(model.queries.broker_in_parts()),
    "see": lambda model: model.see_broker(),
    **{
        f"read {kind}": lambda model, kind=kind: model.queries.read(PREFIX + kind, "x")  # type: ignore[misc]
        for kind in ("broker", "connection", "session", "policy", "route", "channel")
    },
    **{
        f"query {kind}": lambda model, kind=kind: model.queries.query(PREFIX + kind)  # type: ignore[misc]
        for kind in ("broker", "connection", "session", "policy", "route", "channel")
    },
}


@pytest.mark.parametrize("verb", WHOLE)
def test_what_changes_the_broker_needs_a_right_to_the_broker(world: World, verb: str) -> None:
    for who in (NOBODY, ANONYMOUS, BOB):
        with pytest.raises(ForbiddenError):
            WHOLE[verb](act(world, who))


@pytest.mark.parametrize("verb", COPIED)
def test_a_backup_needs_a_right_of_its_own(world: World, verb: str) -> None:
    for who in (NOBODY, ANONYMOUS, ALICE, BOB):
        with pytest.raises(ForbiddenError):
            COPIED[verb](act(world, who))
    for who in (CAROL, INTERNAL):
        assert not is_forbidden(lambda who=who: COPIED[verb](act(world, who)))  # type: ignore[misc]


@pytest.mark.parametrize("verb", SEEN)
def test_what_shows_the_broker_needs_a_right_to_see_it(world: World, verb: str) -> None:
    for who in (NOBODY, ALICE):
        with pytest.raises(ForbiddenError):
            SEEN[verb](act(world, who))
    assert not is_forbidden(lambda: SEEN[verb](act(world, BOB)))


def test_a_pattern_is_held_only_by_who_may_hold_all_of_it(world: World) -> None:
    assert act(world).operators.hold("a.>", True) == ["a.one", "a.two", "a.news"]
    for pattern in (">", "*.one", "#", None):
        with pytest.raises(ForbiddenError):
            act(world).operators.hold(pattern, True)


def test_lists_hold_what_one_may_see(world: World) -> None:
    account = world.producer(world.model.nodes.find("a.one"), "s1")
    assert account is not None
    world.producer(world.model.nodes.find("b.one"), "s2")
    world.model.nodes.bind("a.news", "b.one")
    world.model.nodes.bind("a.news", "a.two")
    world.model.bridges.create("a.one->b.one", {})
    for who, queues, links, bindings, bridges in (
        (ALICE, ["a.one", "a.two"], ["s1"], ["a.news/a.two"], []),
        (BOB, ["a.one", "a.two", "b.one"], ["s1", "s2"], ["a.news/b.one", "a.news/a.two"], ["a.one->b.one"]),
        (NOBODY, [], [], [], []),
    ):
        model = act(world, who)

        def names(kind: str, model: AuthorizedModel = model) -> list[object]:
            page = model.queries.query(PREFIX + kind, ["name"])
            assert page.total == len(page.results)
            return [row[0] for row in page.results]

        assert names("queue") == queues
        assert [row[0] for row in model.queries.query(QUEUE, ["name"], sort="name").results] == queues
        assert model.listing.nodes(["queue"]) == queues
        assert [row["name"] for row in model.listing.rows(["a.one", "a.two", "b.one"], ["name"])] == queues
        assert names("link") == links
        assert [each.link for each in finished(model.listing.others(PREFIX + "link"))] == links  # type: ignore[attr-defined]
        assert sorted(names("binding"), key=str) == sorted(bindings)
        assert names("bridge") == bridges
        every = model.queries.query(None, ["name", "type"])
        assert {row[0] for row in every.results if row[1] == QUEUE} == set(queues)
        assert (PREFIX + "broker" in {row[1] for row in every.results}) is (who is BOB)
        assert model.listing.keys(["b.one"], "depth_msgs") == [0 if who is BOB else None]


def test_a_subscription_goes_by_its_topics_address(world: World) -> None:
    wanted = SubscriptionKey("b.news", "app", "sub", lasts=True)
    name = world.model.subscriptions.join(wanted).node.name
    with pytest.raises(ForbiddenError):
        act(world).messages.purge(name)
    with pytest.raises(ForbiddenError):
        act(world).nodes.delete(name)
    assert act(world, BOB).queries.read(PREFIX + "subscription", name)["name"] == name
    mine = world.model.subscriptions.join(SubscriptionKey("a.news", "app", "mine", lasts=True)).node.name
    assert act(world).messages.purge(mine) == 0


def test_a_subscription_named_as_anothers_queue_is_no_key_to_it(world: World) -> None:
    """Its name is made of what clients say: the topic, their container and their link."""
    world.queue("a.news/app.secret")
    joined = world.model.subscriptions.join(SubscriptionKey("a.news", "app", "secret", lasts=True))
    assert joined.node.name != "a.news/app.secret"
    rules = "rules: [{allow: all, users: [alice], addresses: [a.news]}]"
    world.model.authority.replace(parse_acl(rules, "acl.yaml"), ())
    for verb in ("purge", "delete", "browse", "read", "update", "find"):
        with pytest.raises(ForbiddenError):
            VERBS[verb](act(world), "a.news/app.secret")


def test_a_queue_named_as_anothers_subscription_is_not_made(world: World) -> None:
    world.model.subscriptions.join(SubscriptionKey("a.news", "app", "secret", lasts=True))
    with pytest.raises(ConflictError, match="subscription"):
        world.queue("a.news/app.secret")


def test_who_made_something_is_told_of_it(world: World) -> None:
    rules = "rules: [{allow: [create, manage-write], users: [alice], addresses: ['a.#']}]"
    world.model.authority.replace(parse_acl(rules, "acl.yaml"), ())
    model = act(world)
    model.nodes.create("queue", "a.new")
    assert model.queries.read(QUEUE, "a.new")["name"] == "a.new"
    model.nodes.bind("a.news", "a.new")
    assert model.queries.read(PREFIX + "binding", "a.news/a.new")["target"] == "a.new"
    with pytest.raises(ForbiddenError):
        act(world).queries.read(QUEUE, "a.new")


def test_moving_makes_nothing_without_the_right_to(world: World) -> None:
    rules = "rules: [{allow: [move, send], users: [alice]}]"
    world.model.authority.replace(parse_acl(rules, "acl.yaml"), ())
    world.put(world.model.nodes.find("a.one"), 3)
    with pytest.raises(ForbiddenError, match=r"may not create 'a\.new'"):
        act(world).messages.move("a.one", "a.new")
    assert act(world).messages.move("a.one", "a.two") == 3


def test_a_link_that_may_not_be_detached_is_as_one_that_is_not_there(world: World) -> None:
    for node, link in (("a.one", "mine"), ("b.one", "hidden")):
        world.producer(world.model.nodes.find(node), link)
    told = set()
    for link in ("c1/hidden", "c1/gone"):
        with pytest.raises(ForbiddenError) as refused:
            act(world, NOBODY).operators.detach_link(link)
        told.add(str(refused.value))
    assert told == {"user 'nobody' may not change '$broker'"}
    act(world, INTERNAL).operators.detach_link("c1/hidden")
    rules = "rules: [{allow: all, users: [alice], addresses: ['a.#']}]"
    world.model.authority.replace(parse_acl(rules, "acl.yaml"), ())
    with pytest.raises(ForbiddenError, match=r"'\$broker'"):
        act(world).operators.detach_link("c1/hidden")
    act(world).operators.detach_link("c1/mine")
    assert world.links.ended == ["c1/hidden", "c1/mine"]


def test_why_looks_at_no_link_that_may_not_be_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for node, link in (("a.one", "mine"), ("b.one", "hidden")):
        world.consumer(world.model.nodes.find(node), credit=0, link=link)
    looked: list[str] = []
    given = world.links.consumers

    def watched(node_name: str | None, only: Callable[[object], bool] | None = None) -> list[ConsumerView]:
        found = given(node_name, only)
        looked.extend(view.node for view in found)
        return found

    monkeypatch.setattr(world.links, "consumers", watched)
    act(world).diagnostics.why()
    assert looked == ["a.one"]
    world.model.authority.replace(
        parse_acl("rules: [{allow: manage-read, addresses: ['c1/hidden']}]", "x"), ()
    )
    with pytest.raises(NotFoundError):
        act(world).diagnostics.why("c1/hidden")


# --- the management node


SAFE = {f"GET-{what}" for what in ("TYPES", "ANNOTATIONS", "ATTRIBUTES", "OPERATIONS", "MGMT-NODES")}
# Arguments with which an operation would be done.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "CREATE": {"type": QUEUE, "name": "b.new"},
    "READ": {"type": QUEUE, "name": "b.one"},
    "UPDATE": {"type": QUEUE, "name": "b.one", "body": {"max_count": 5}},
    "DELETE": {"type": QUEUE, "name": "b.one"},
    "stop-producers": {"body": {"target": "b.one"}},
    "start-producers": {"body": {"target": "b.one"}},
    "explain": {"body": {"address": "b.one"}},
    "effect": {"body": {"name": "b.one", "arguments": {}}},
    "why": {"body": {"address": "b.one"}},
    "purge": {"body": {"name": "b.one"}},
    "move": {"body": {"source": "b.one", "target": "a.one"}},
    "browse": {"body": {"name": "b.one"}},
    "delayed": {"body": {"name": "b.one"}},
    "cancel": {"body": {"name": "b.one", "number": 1}},
    "groups": {"body": {"name": "b.one"}},
    "reset-group": {"body": {"name": "b.one", "group": "a"}},
    "readers": {"body": {"name": "b.one"}},
    "forget-reader": {"body": {"name": "b.one", "reader": "a"}},
    "discard": {"body": {"name": "b.one"}},
    "backup": {"body": {"target": "there"}},
    "apply": {"body": {"text": "policies: []"}},
    "trace": {"body": {"connection": "c1"}},
    "move-node": {"body": {"name": "b.one", "cell": 1}},
    "node-moved": {"body": {"name": "b.one"}},
}


def answered(world: World, identity: Identity, operation: str, body: Any = None, **named: str) -> Message:
    """What the management node answers to somebody."""
    properties = {"operation": operation, **named}
    request = Message(properties=properties, body=body, reply_to="back", id="7")
    reply = ManagementNode(world.model).handle(bytes(request.encode()), identity)
    assert reply is not None
    answer = Message()
    answer.decode(reply[1])
    return answer


@pytest.mark.parametrize("operation", sorted({*ManagementNode(World().model).operations} - SAFE))
def test_no_operation_is_forgotten(world: World, operation: str) -> None:
    """Every one there is, the next one too: who has no right is refused, or shown nothing."""
    answer = answered(world, NOBODY, operation, **ARGUMENTS.get(operation, {}))
    told: Any = answer.properties
    body: Any = answer.body
    if operation == "QUERY":
        assert (told["statusCode"], body["results"]) == (200, [])
        return
    assert (told["statusCode"], body) == (403, {})
    assert str(told["statusDescription"]).startswith("user 'nobody' may not ")


def test_types_are_no_secret(world: World) -> None:
    for operation in SAFE:
        told: Any = answered(world, NOBODY, operation).properties
        assert told["statusCode"] == 200
    assert OPERATIONS.keys() > ROWS.keys()


# --- the authority itself


def test_decisions_are_kept_and_bounded() -> None:
    authority = AccessControl(parse_acl(RULES, "acl.yaml"))
    asked = 0
    rights = authority.acl.rights(ALICE, Action.SEND, "")
    decide = rights.decide

    def counting(address: str) -> object:
        nonlocal asked
        asked += 1
        return decide(address)

    rights.decide = counting  # type: ignore[method-assign, assignment]
    authority._rights[ALICE, Action.SEND, ""] = rights
    for _ in range(3):
        assert authority.allows(ALICE, Action.SEND, "a.one")
        assert not authority.allows(ALICE, Action.SEND, "b.one")
    assert asked == 2
    for number in range(MOST_DECISIONS + 10):
        authority.allows(ALICE, Action.SEND, f"b.{number}")
    assert len(authority._decisions) <= MOST_DECISIONS
    kept = len(authority._decisions)
    authority.allows(ALICE, Action.SEND, "b." * 5000 + "x")
    assert len(authority._decisions) == kept


RULES_OF = st.lists(
    st.tuples(
        st.sampled_from(["allow", "deny"]),
        st.sampled_from(["send", "receive", "all"]),
        st.sampled_from(["a.#", "*.b", "${user}.>", "a.b", "#", "$temporary"]),
        st.sampled_from(["", "alice", "bob"]),
    ),
    min_size=1,
    max_size=4,
)
ASKED = st.lists(
    st.tuples(
        st.sampled_from([ALICE, BOB]),
        st.sampled_from([Action.SEND, Action.RECEIVE]),
        st.sampled_from(["a.b", "alice.x", "bob.b", "a.*", "$temporary/1/2", "c"]),
    ),
    max_size=12,
)


@given(st.lists(st.tuples(RULES_OF, ASKED), min_size=1, max_size=4))
def test_what_is_kept_is_what_the_rules_say(eras: list[Any]) -> None:
    """However often it is asked, and whatever rules there were before."""
    authority = AccessControl()
    for rules, asked in eras:
        lines = [
            f"  - {{{verb}: {action}, addresses: '{pattern}'{f', users: {user}' if user else ''}}}"
            for verb, action, pattern, user in rules
        ]
        acl = parse_acl("\n".join(["rules:", *lines]), "acl.yaml")
        authority.replace(acl, ())
        for who, action, address in asked:
            meant = "$temporary" if address.startswith("$temporary") else address
            assert authority.decide(who, action, address) == acl.decide(who, action, "", meant)


def test_the_broker_itself_may_and_nobody_of_its_name() -> None:
    authority = AccessControl(parse_acl("rules: [{deny: all}]", "acl.yaml"))
    assert authority.allows(INTERNAL, Action.DELETE, "a")
    assert authority.connects(INTERNAL, "").allowed
    assert authority.allows(Identity("$broker", mechanism="ANONYMOUS"), Action.DELETE, "a")
    named = [Identity("$broker", mechanism=each) for each in ("OAUTHBEARER", "EXTERNAL", "PLAIN")]
    for same in (*named, Identity(""), ANONYMOUS):
        assert not authority.allows(same, Action.DELETE, "a")


@pytest.mark.parametrize(
    ("address", "allowed"),
    [("shop/orders", True), ("orders", False), ("lab/orders", False), ("$broker", False)],
)  # fmt: skip
def test_the_virtual_host_is_read_from_the_name(address: str, allowed: bool) -> None:
    rules = "rules: [{allow: send, virtual_hosts: [shop], addresses: [orders, $broker]}]"
    authority = AccessControl(parse_acl(rules, "acl.yaml"), ["shop", "lab"])
    assert authority.allows(ALICE, Action.SEND, address) is allowed


def test_nodes_are_counted_by_who_made_them(world: World) -> None:
    ownership = world.model.ownership
    ownership.most = 2
    world.model.authority.replace(parse_acl("rules: [{allow: all}]", "acl.yaml"), ())
    act(world).nodes.create("queue", "n.1")
    act(world).nodes.create("topic", "n.2")
    for attempt in ("n.3", "n.4"):
        with pytest.raises(OperatorError, match="you have made 2 nodes and may make no more"):
            act(world).nodes.create("queue", attempt)
    assert "n.3" not in world.engine.topology.nodes
    act(world, BOB).nodes.create("queue", "n.3")
    assert (ownership.count("alice"), ownership.count("bob"), ownership.refused) == (2, 1, 2)
    act(world, BOB).nodes.delete("n.1")
    act(world).nodes.create("queue", "n.4")
    with pytest.raises(NotFoundError):
        act(world).nodes.delete("n.1")
    for name in ("n.2", "n.3", "n.4"):
        world.model.nodes.delete(name)
    lasting = SubscriptionKey("a.news", "app", "sub", lasts=True, user="alice")
    passing = replace(lasting, link="passing", lasts=False)
    world.model.subscriptions.join(lasting)
    joined = [world.model.subscriptions.join(passing) for _ in range(3)]
    act(world).nodes.create("queue", "n.5")
    with pytest.raises(LimitError):
        world.model.subscriptions.join(replace(lasting, link="other"))
    world.model.subscriptions.join(replace(lasting, link="other", user=""))
    assert (ownership.count("alice"), ownership.count("anonymous")) == (2, 1)
    for each in (*joined, world.model.subscriptions.find("app", "sub", "alice")):
        assert each is not None
        world.model.subscriptions.remove(each)
    world.model.nodes.delete("n.5")
    assert ownership.count("alice") == ownership.count("bob") == 0
    for number in range(5):
        act(world, INTERNAL).nodes.create("queue", f"m.{number}")
