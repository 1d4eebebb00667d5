"""What a verb loads before it does anything: what is imported, for times depend on the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker.cli.main import VERBS

# The broker itself, and libraries that take long to load and are of use to few verbs, or late.
HEAVY = (
    *("broker.engine.engine", "broker.server.server", "broker.amqp", "broker.http"),
    *("broker.manage.model", "broker.manage.authorized", "broker.manage.policies", "broker.config.policies"),
    *(
        "broker.store",
        "broker.config.broker",
        "fastapi",
        "pydantic",
        "starlette",
        "uvicorn",
        "prometheus_client",
    ),
    *("rich", "yaml", "lmdb", "asyncio", "http", "multiprocessing"),
)
CLIENT = ("proton", "cproton_ffi", "cproton", "cffi", "ssl", "broker.client.link", "broker.client.request")


def loaded(code: str) -> set[str]:
    """The modules there are after some code in a Python of its own; how it ends doesn't matter."""
    program = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def run(*words: str) -> set[str]:
    return loaded(f"from broker.cli.main import main; main({list(words)!r})")


def within(modules: set[str], packages: tuple[str, ...]) -> list[str]:
    """Those of the packages that are there, whole or in part."""
    return [
        name for name in packages if name in modules or any(each.startswith(f"{name}.") for each in modules)
    ]


def test_help_loads_next_to_nothing() -> None:
    found = run("--help")
    assert (
        within(found, (*HEAVY, *CLIENT, "argparse", "json", "dataclasses", "inspect", "broker.errors")) == []
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_help_loads_neither_the_broker_nor_a_client(verb: str) -> None:
    assert within(run(verb, "--help"), (*HEAVY, *CLIENT)) == []


@pytest.mark.parametrize(
    "words",
    [
        "stat -f",
        "config queues",
        "config apply",
        "explain orders",
        "why",
        "producers list",
        "close c1",
        "browse orders",
        "move a b",
        "purge orders",
        "events",
        "store stats",
        "top",
        "send orders",
        "receive orders",
    ],
)
def test_a_verb_that_asks_a_broker_loads_the_client_and_no_more(words: str) -> None:
    """Nobody listens there; all that a question needs has been loaded by then."""
    found = run(*words.split(), "-b", "amqp://127.0.0.1:1")
    assert within(found, HEAVY) == []
    assert "cproton_ffi" in found


@pytest.mark.parametrize(
    "words", ["schema policies", "completion bash", "stat --no-such-flag", "completion words st"]
)
def test_what_needs_no_broker_loads_no_client(words: str) -> None:
    assert within(run(*words.split()), CLIENT) == []
