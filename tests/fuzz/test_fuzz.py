"""Each target of the fuzzers for about a second: what is committed, and changes of it made with one seed.

The same inputs every time. `make fuzz` goes on for longer, led by what code it reaches; what it finds is
committed beside the rest, and from then on tried here.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import corpus
from tests.fuzz import seeds as written
from tests.fuzz.mutate import havoc
from tests.fuzz.target import NAMES, Target, load

SEED = 20261121
# What one input may take of the processor: what takes a time that grows with more than its length takes more.
MOST_SECONDS = 2.0
# The smallest changes are often the most telling: half of the inputs have an ancestor in the corpus itself.
MOST_KEPT = 500


def tried(target: Target, data: bytes) -> None:
    """The input shows no fault and takes no longer than it may; a failure tells the input."""
    begin = time.thread_time()
    try:
        target.check(data)
    except BaseException as fault:
        fault.add_note(f"with the input {data!r}")
        raise
    took = time.thread_time() - begin
    assert took < MOST_SECONDS, f"{took:.1f} s for {len(data)} bytes: {data!r}"


def short_run(name: str) -> None:
    """The corpus and changes of it; also what the sanitizers look at."""
    target = load(name)
    seeds = target.seeds()
    for data in seeds:
        tried(target, data)
    random = Random(SEED)
    kept = seeds[:]
    for number in range(target.short):
        data = random.choice(kept if number % 2 else seeds)
        if target.mutate is not None and random.randrange(4):
            data = target.mutate(data, random)[: target.largest]
        else:
            data = havoc(data, random, target.words, random.choice(seeds), target.largest)
        tried(target, data)
        if len(kept) < MOST_KEPT:
            kept.append(data)
        else:
            kept[random.randrange(MOST_KEPT)] = data


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_and_changes_of_it(name: str) -> None:
    short_run(name)


def test_every_seed_is_committed() -> None:
    for name, found in written.seeds().items():
        committed = corpus.read(name)
        for seed, data in found.items():
            assert committed[seed] == data, f"python -m tests.fuzz.seeds writes {name}/{seed}"


def test_every_input_says_what_it_is() -> None:
    assert {path.stem for path in corpus.CORPUS.iterdir()} == {*NAMES}
    for target in NAMES:
        for name, data in corpus.read(target).items():
            assert name
            assert len(data) <= 16_384, f"{name} of {target} is too large to be looked at"


def test_a_corpus_file_holds_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "corpus")
    inputs = {"empty": b"", "every": bytes(range(256)), "lines": b" a\n\r\x85 \\x41\\", "fault-1": b"\0"}
    corpus.write("any", inputs)
    assert corpus.read("any") == inputs
    assert len(corpus.path_of("any").read_text().splitlines()) == len(inputs)
    corpus.unpack("any", tmp_path / "files")
    assert {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()} == inputs
    with pytest.raises(ValueError, match="holds no space"):
        corpus.write("any", {"two words": b""})
