"""Compiles the message path: the pure rooms as they stand, and what calls Proton's C functions."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Every .pxd beside a .py types that file for compilation; every .pyx is compiled only. The numbers
# in constants.pxd are C constants, which need no module of their own.
CONSTANTS = Path("broker/constants.py")
ROOT = Path(__file__).parent
SOURCES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "broker").rglob("*")
    if path.suffix == ".pyx" or (path.suffix == ".py" and path.with_suffix(".pxd").exists())
    if path.relative_to(ROOT) != CONSTANTS
)
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # the .pxd alone says what is a C type
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "auto_pickle": False,
}
# How it is compiled: as it is shipped, without what debuggers read, which is three quarters of a wheel; for
# tests/fuzz/build.py, saying where it went, or with the sanitizers; or not at all: the Makefile then compiles
# in place, and only what changed.
BUILD = os.environ.get("SLUICE_BUILD", "shipped")
SANITIZERS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize=alignment,vptr",
    "-fno-sanitize-recover=undefined",
]
COMPILE, LINK = {
    "shipped": (["-O3", "-g0"], []),
    "none": ([], []),
    "coverage": (["-O1", "-g", "-fsanitize-coverage=trace-pc,trace-cmp"], []),
    "sanitized": (["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZERS], SANITIZERS),
}[BUILD]

setup(
    ext_modules=[]
    if BUILD == "none"
    else cythonize(
        [
            Extension(
                ".".join(path.with_suffix("").parts),
                [str(path)],
                include_dirs=["."],
                extra_compile_args=COMPILE,
                extra_link_args=LINK,
            )
            for path in SOURCES
        ],
        compiler_directives=DIRECTIVES,
        emit_linenums=BUILD != "shipped",
        build_dir="build/c",
        nthreads=os.cpu_count() or 1,
    ),
    options={"build_ext": {"parallel": True}},
)
