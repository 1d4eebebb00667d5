"""Each target of the fuzzers for about a second: what is committed, and changes of it made with one seed.

The same inputs every time. `make fuzz` goes on for longer, led by what code it reaches; what it finds is
committed beside the rest, and from then on tried here.
"""

from __future__ import annotations

import time
from random import Random

import pytest

from tests.fuzz.mutate import havoc
from tests.fuzz.seeds import seeds
from tests.fuzz.target import CORPUS, NAMES, Target, load

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
    corpus = target.seeds()
    for data in corpus:
        tried(target, data)
    random = Random(SEED)
    kept = corpus[:]
    for number in range(target.short):
        data = random.choice(kept if number % 2 else corpus)
        if target.mutate is not None and random.randrange(4):
            data = target.mutate(data, random)[: target.largest]
        else:
            data = havoc(data, random, target.words, random.choice(corpus), target.largest)
        tried(target, data)
        if len(kept) < MOST_KEPT:
            kept.append(data)
        else:
            kept[random.randrange(MOST_KEPT)] = data


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_and_changes_of_it(name: str) -> None:
    short_run(name)


def test_every_seed_is_committed() -> None:
    for name, found in seeds().items():
        for seed, data in found.items():
            assert (CORPUS / name / seed).read_bytes() == data, (
                f"python -m tests.fuzz.seeds writes {name}/{seed}"
            )


def test_every_input_says_what_it_is() -> None:
    for path in CORPUS.glob("*/*"):
        assert path.parent.name in NAMES
        assert path.stat().st_size <= 16_384, f"{path} is too large to be looked at"
