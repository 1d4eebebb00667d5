"""Compiles the bare loop when it must be and runs it: ``python -m bench.barebroker PORT``."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from sysconfig import get_config_var
from types import ModuleType

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "bench" / "bareloop.pyx"
BUILT = ROOT / "build" / "bench" / f"bareloop{get_config_var('EXT_SUFFIX')}"
NEEDS = (SOURCE, ROOT / "broker" / "client" / "wire.pxd")


def compiled() -> Path:
    """The bare loop's extension, compiled if its source is newer than what is there."""
    if not BUILT.exists() or BUILT.stat().st_mtime < max(path.stat().st_mtime for path in NEEDS):
        _compile()
    return BUILT


def _compile() -> None:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension  # type: ignore[import-untyped]
    from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]

    # Built under a name of its own and moved into place, so that two builds at once do no harm.
    directory = BUILT.parent / str(os.getpid())
    extension = Extension("bareloop", [str(SOURCE)], extra_compile_args=["-O3"])
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}
    modules = cythonize(  # type: ignore[no-untyped-call]
        [extension],
        compiler_directives=directives,
        build_dir=str(directory),
        include_path=[str(ROOT)],
        quiet=True,
    )
    command = build_ext(Distribution({"ext_modules": modules}))
    command.build_lib = command.build_temp = str(directory)
    command.ensure_finalized()
    command.run()
    (directory / BUILT.name).replace(BUILT)


def load() -> ModuleType:
    """The compiled module, with Proton's functions in sight."""
    import_module("broker.client")
    spec = spec_from_file_location("bareloop", compiled())
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    load().serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
