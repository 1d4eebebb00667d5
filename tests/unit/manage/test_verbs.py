"""The table of verbs is whole: what has no row is refused, and each row fits its method."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature

import pytest

from broker.errors import ForbiddenError
from broker.manage.access import INTERNAL
from broker.manage.authorized import AuthorizedModel, GuardedPart
from broker.manage.verbs import INNER, VERBS
from broker.security.acl import OPEN
from broker.security.identity import Identity
from broker.security.rules import parse_acl
from tests.unit.manage_world import World

ROWS = [(part, verb) for part, verbs in VERBS.items() for verb in verbs]


def public_names(world: World, part: str) -> Iterator[str]:
    """Everything a part of the model shows without an underscore, attributes included."""
    found = getattr(world.model, part)
    return (name for name in sorted({*dir(found), *vars(found)}) if not name.startswith("_"))


def test_each_part_that_a_client_reaches_has_its_verbs_in_the_table() -> None:
    model = AuthorizedModel(World().model)
    parts = {name for name, value in vars(model).items() if not name.startswith("_")}
    assert parts == set(VERBS)
    assert all(type(getattr(model, part)) is GuardedPart for part in parts)


@pytest.mark.parametrize("part", VERBS)
def test_what_has_no_row_is_refused_to_everybody(part: str) -> None:
    world = World()
    without = [name for name in public_names(world, part) if name not in VERBS[part]]
    for acl in (OPEN, parse_acl("rules: [{allow: all}]", "acl.yaml")):
        world.model.authority.replace(acl, ())
        for identity in (INTERNAL, Identity("alice")):
            guarded = getattr(AuthorizedModel(world.model, identity), part)
            for name in (*without, "_engine", "no such verb"):
                with pytest.raises(ForbiddenError, match="nothing that a client may do"):
                    getattr(guarded, name)


@pytest.mark.parametrize(("part", "verb"), ROWS)
def test_each_row_fits_its_method(part: str, verb: str) -> None:
    method = getattr(type(getattr(World().model, part)), verb)
    parameters = signature(method).parameters.keys()
    assert VERBS[part][verb].fill.keys() <= parameters
    # The user that a node is made for, and the rows that one may see, come from the rights alone.
    assert parameters & {"user", "only"} <= VERBS[part][verb].fill.keys()


def test_nobody_gives_what_the_rights_decide() -> None:
    world = World()
    world.queue("orders")
    model = AuthorizedModel(world.model, Identity("alice"))
    assert {"user", "only", "anyway"} == INNER
    with pytest.raises(TypeError, match="not given user from outside"):
        model.nodes.create("queue", "bills", user="bob")
    with pytest.raises(TypeError, match="not given anyway from outside"):
        model.nodes.delete("orders", True)
    with pytest.raises(TypeError, match="not given only from outside"):
        model.listing.nodes(["queue"], lambda node: True)
    assert list(world.engine.topology.nodes) == ["orders"]
