"""What may follow on a command line, without a shell and, but for names, without a broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from broker.cli.main import VERBS
from broker.cli.terminal import candidates


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """Who was asked for the names of what; the broker has one of each kind, and one no terminal may see."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    def ask(url: str, kinds: Iterable[str]) -> list[str]:
        asked.append((url, tuple(kinds)))
        return [*(f"the.{kind}" for kind in kinds), "a\x1b[2J"]

    monkeypatch.setattr(candidates, "ask_names", ask)
    return asked


def words(line: str) -> list[str]:
    """The words offered after a line, without what is told of them."""
    return [each.partition("\t")[0] for each in candidates.of_words(candidates.split(line)[1:])]


def test_verbs() -> None:
    assert words("sluice ") == [*VERBS, "help"]
    assert words("sluice st") == ["stat", "store"]
    assert words("sluice help pu") == ["purge"]
    assert words("sluice nonsense ") == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sluice stat --sort", ["--sort-by"]),
        ("sluice stat --dur", []),
        ("sluice config a", ["add", "apply"]),
        ("sluice config -b amqp://x a", ["add", "apply"]),
        ("sluice config add ", ["queue", "topic", "bridge"]),
        ("sluice config add queue orders --limit-policy ", ["none", "reject", "ring"]),
        ("sluice config add queue orders --limit-policy=r", ["--limit-policy=reject", "--limit-policy=ring"]),
        ("sluice config add queue --flow-stop-s", ["--flow-stop-size"]),
        ("sluice producers st", ["stop", "start"]),
        ("sluice top --by s", ["stopped"]),
        ("sluice completion f", ["fish"]),
        ("sluice serve --config ", [":files"]),
        ("sluice send orders --csv=fl", [":files"]),
        ("sluice advise ", [":files"]),
        ("sluice config apply ", [":files"]),
        ("sluice config add queue ", []),
        ("sluice send orders --count ", []),
        ("sluice send orders more ", []),
    ],
)
def test_flags_choices_and_files(line: str, found: list[str], names: list[object]) -> None:
    assert words(line) == found
    assert names == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sluice why ", ["the.queue", "the.topic"]),
        ("sluice why the.q", ["the.queue"]),
        ("sluice send --durable ", ["the.queue", "the.topic"]),
        ("sluice config del queue ", ["the.queue"]),
        ("sluice config set topic ", ["the.topic"]),
        ("sluice config bind ", ["the.topic"]),
        ("sluice config bind news ", ["the.queue"]),
        ("sluice move ", ["the.queue"]),
        ("sluice close c1 ", ["the.connection", "the.link"]),
        ("sluice events --node ", ["the.queue", "the.topic"]),
        ("sluice producers stop ", ["the.queue", "the.topic"]),
    ],
)
def test_names_come_from_the_broker_and_only_safe_ones(line: str, found: list[str]) -> None:
    assert words(line) == found


def test_the_broker_asked_is_the_one_the_line_means(
    names: list[tuple[str, tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_BROKER", "amqp://env")
    words("sluice why ")
    words("sluice why -b amqp://flag ")
    words("sluice why --broker=amqp://long ")
    assert [url for url, _ in names] == ["amqp://env", "amqp://flag", "amqp://long"]


def test_a_broker_that_does_not_answer_has_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert candidates.ask_names("amqp://127.0.0.1:1", ["queue"]) == []
    assert candidates.ask_names("nonsense://", ["queue"]) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sluice why 'or", ["sluice", "why", "or"]),
        ('sluice why "a b', ["sluice", "why", "a b"]),
        ("sluice why a\\", ["sluice", "why", "a"]),
        ("sluice why a\\ b", ["sluice", "why", "a b"]),
        ("sluice why ", ["sluice", "why", ""]),
        ("", [""]),
    ],
)
def test_a_line_that_is_not_finished_is_split(line: str, found: list[str]) -> None:
    assert candidates.split(line) == found


def test_bash_is_told_what_it_broke_off() -> None:
    assert candidates.of_line("sluice config add queue q --limit-policy=ri") == [
        "--limit-policy=",
        "--limit-policy=ring",
    ]
    assert candidates.of_line("sluice stat --sort")[0] == ""
