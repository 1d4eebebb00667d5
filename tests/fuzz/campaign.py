"""One target, in a process of its own that `make fuzz` starts beside the build that says where it went.

`search NAME SECONDS INPUTS` lets libFuzzer look for new inputs, which it keeps in a directory; `replay NAME
INPUTS` tries them once more and prints which lines they reached.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import sys
import time
from pathlib import Path
from random import Random

LARGEST = 8192
MOST_SECONDS = 5.0
# Before anything of the broker's is imported: what that calls must be there.
SHIM = ctypes.CDLL(str(Path(os.environ["SLUICE_FUZZ"]) / "coverage.so"), mode=os.RTLD_GLOBAL | os.RTLD_NOW)


def search(name: str, seconds: int, inputs: Path) -> None:
    """Look for inputs that reach more; ends the process with an error at the first fault."""
    if importlib.util.find_spec("atheris") is None:
        sys.exit("atheris is not installed here: `make dev` installs it where it has a wheel")
    import atheris

    from tests.fuzz import corpus
    from tests.fuzz.target import Target, load

    made: list[Target] = []

    def tried(data: bytes) -> None:
        begin = time.thread_time()
        made[0].check(data)
        # Of the processor, not of the clock, which goes on while somebody else has the machine.
        took = time.thread_time() - begin
        if took > MOST_SECONDS:
            raise AssertionError(f"{took:.1f} s for {len(data)} bytes")

    def changed(data: bytes, most: int, seed: int) -> bytes:
        random, mutate = Random(seed), made[0].mutate
        if mutate is None or random.randrange(3) == 0:
            return bytes(atheris.Mutate(data, most))
        return mutate(data, random)[:most]

    words = inputs.with_suffix(".dict")
    committed = inputs.with_suffix(".corpus")
    shutil.rmtree(committed, ignore_errors=True)
    corpus.unpack(name, committed)
    arguments = [
        *("campaign", f"-max_total_time={seconds}", f"-max_len={LARGEST}", f"-dict={words}"),
        *(
            f"-artifact_prefix={inputs.parent}/fault-{name}-",
            "-timeout=1800",
            "-report_slow_units=1800",
            "-rss_limit_mb=2048",
        ),
        *("-print_final_stats=1", "-reload=0", str(inputs), str(committed)),
    ]
    atheris.Setup(arguments, tried, custom_mutator=changed)
    with atheris.instrument_imports(include=["broker"]):
        made.append(load(name))
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in made[0].words if word))
    _hand_over(Path(str(atheris.__file__)).parent)
    atheris.Fuzz()


def _hand_over(folder: Path) -> None:
    """Show libFuzzer the counters of the compiled part, and that where libFuzzer's functions are."""
    (path,) = folder.glob("core_with_libfuzzer.*.so")
    core = ctypes.CDLL(str(path))
    SHIM.sluice_counters.restype = SHIM.sluice_places.restype = ctypes.c_void_p
    SHIM.sluice_place_count.restype = ctypes.c_size_t
    count = SHIM.sluice_place_count()
    for function, start, size in (
        (core.__sanitizer_cov_8bit_counters_init, SHIM.sluice_counters(), 1),
        (core.__sanitizer_cov_pcs_init, SHIM.sluice_places(), 16),
    ):
        function(ctypes.c_void_p(start), ctypes.c_void_p(start + count * size))
    for width in ("1", "2", "4", "8"):
        for name in (f"cmp{width}", f"const_cmp{width}"):
            told = ctypes.cast(getattr(core, f"__sanitizer_cov_trace_{name}"), ctypes.c_void_p)
            ctypes.c_void_p.in_dll(SHIM, f"sluice_{name}").value = told.value
    told = ctypes.cast(core.__sanitizer_cov_trace_switch, ctypes.c_void_p)
    ctypes.c_void_p.in_dll(SHIM, "sluice_switch").value = told.value


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def replay(name: str, inputs: Path) -> None:
    """Print, as JSON, how many lines of each of the target's files these inputs and the corpus reach, and of
    how many."""
    from tests.fuzz import reached
    from tests.fuzz.target import load

    folder = Path(os.environ["SLUICE_FUZZ"])
    target = load(name)
    found = [path.read_bytes() for path in sorted(inputs.iterdir())]
    watch = reached.Watch(folder, target.files)
    watch.start()
    try:
        for data in (*target.seeds(), *found):
            target.check(data)
    finally:
        watch.stop()
    ran, every = reached.compiled(folder, target.files, SHIM)
    for file in target.files:
        if file not in every:
            every[file] = reached.written(folder / "broker" / file)
            ran[file] = watch.lines.get(file, set()) & every[file]
    print(json.dumps({file: (len(ran[file]), len(every[file])) for file in target.files}))


if __name__ == "__main__":
    if sys.argv[1] == "search":
        search(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        replay(sys.argv[2], Path(sys.argv[3]))
