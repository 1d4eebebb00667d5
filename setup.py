"""Compiles the message path: the pure rooms as they stand, and what calls Proton's C functions."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Every .pxd beside a .py types that file for compilation; every .pyx is compiled only. The numbers
# in codes.pxd are C constants, which need no module of their own.
CONSTANTS = Path("broker/codes.py")
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

setup(
    ext_modules=cythonize(
        [
            Extension(
                ".".join(path.with_suffix("").parts),
                [str(path)],
                include_dirs=["."],
                extra_compile_args=["-O3", "-g0"],  # without what debuggers read, three quarters of a wheel
            )
            for path in SOURCES
        ],
        compiler_directives=DIRECTIVES,
        build_dir="build/c",
    ),
    options={"build_ext": {"parallel": True}},
)
