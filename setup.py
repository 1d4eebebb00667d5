"""Compiles the message path: the pure rooms as they stand, and what calls Proton's C functions.

As it is shipped, what is compiled lies in three shared objects, so that a message's path is on few pages
of memory: those of ``broker.amqp`` and ``broker.client`` need Proton, ``broker/_linked`` doesn't. The file
of each module only calls the module's beginning in one of them.
"""

import os
import sys
from multiprocessing.pool import ThreadPool
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
# tests/fuzz/build.py, saying where it went, or with the sanitizers; for tests/docs/walks.py, so that Python's
# profiler sees each call; or not at all: the Makefile then compiles in place, and only what changed.
BUILD = os.environ.get("SLUICE_BUILD", "shipped")
SANITIZERS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize=alignment,vptr",
    "-fno-sanitize-recover=undefined",
]
COMPILE, LINK = {
    # Smaller code is quicker here than what -O3 unrolls: docs/performance.md has the figures.
    "shipped": (["-O2", "-g0", "-fno-plt", "-ffunction-sections"], ["-Wl,-O1,--gc-sections"]),
    "none": ([], []),
    "coverage": (["-O1", "-g", "-fsanitize-coverage=trace-pc,trace-cmp"], []),
    "sanitized": (["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZERS], SANITIZERS),
    "profiled": (["-O0", "-g0", "-DCYTHON_TRACE_NOGIL=1"], []),
}[BUILD]
DIRECTIVES["profile"] = BUILD == "profiled"
IS_LINKED = BUILD == "shipped" and sys.platform == "linux"
# By package, the innermost first: the shared object of what is beneath it. The loader takes two of one name
# for the same, whatever folder they are in.
LINKED = (
    {
        "broker.amqp": "broker.amqp._linked_amqp",
        "broker.client": "broker.client._linked_client",
        "broker": "broker._linked",
    }
    if IS_LINKED
    else {}
)
# The only .c files here that are written by hand, for each module: Python finds its beginning by this name.
BEGINNING = """#include <Python.h>

PyObject *{begin}(void);

PyMODINIT_FUNC PyInit_{name}(void) {{
    return {begin}();
}}
"""


class Build(build_ext):
    """Compiles each module to an object, links them together, and each module's beginning to them."""

    def build_extensions(self) -> None:
        """Build what changed. Raises setuptools' CompileError, LinkError."""
        modules = [each for each in self.extensions if each.sources] if IS_LINKED else []
        with ThreadPool(os.cpu_count() or 1) as pool:
            objects = pool.map(self.compiled, modules)
        for each in self.extensions:
            if not each.sources:
                mine = [path for path, of in zip(objects, modules, strict=True) if linked(of) == each.name]
                each.extra_objects = each.depends = mine
                each.extra_link_args = [*LINK, f"-Wl,-soname,{Path(self.get_ext_filename(each.name)).name}"]
                self.build_extension(each)
        super().build_extensions()

    def compiled(self, module: Extension) -> str:
        """Compile what changed, make what begins the module its source, and return the object."""
        [source] = module.sources
        folder = Path(self.build_temp).absolute()
        made = folder / Path(source).with_suffix(".o")
        name, begin = module.name.rpartition(".")[2], f"sluice_{module.name.replace('.', '_')}"
        newest = max(path.stat().st_mtime for path in (ROOT / source, Path(__file__)))
        if not made.exists() or made.stat().st_mtime <= newest:
            [path] = self.compiler.compile(
                [source],
                output_dir=str(folder),
                macros=[(f"PyInit_{name}", begin)],
                include_dirs=module.include_dirs,
                extra_postargs=module.extra_compile_args,
            )
            assert Path(path) == made
        beginning = folder / "begin" / Path(source)
        text = BEGINNING.format(name=name, begin=begin)
        if not beginning.exists() or beginning.read_text() != text:
            beginning.parent.mkdir(parents=True, exist_ok=True)
            beginning.write_text(text)
        above = "../" * (module.name.count(".") - linked(module).count("."))
        module.sources, module.depends = [str(beginning)], [__file__]
        module.extra_objects = [str(Path(self.get_ext_fullpath(linked(module))).absolute())]
        module.extra_link_args = [f"-Wl,-rpath,$ORIGIN/{above}"]
        return str(made)


def linked(module: Extension) -> str:
    """Return the name of the shared object that has a module."""
    return next(name for package, name in LINKED.items() if module.name.startswith(f"{package}."))


setup(
    ext_modules=[]
    if BUILD == "none"
    else [Extension(name, []) for name in LINKED.values()]
    + cythonize(
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
    cmdclass={"build_ext": Build},
    options={"build_ext": {"parallel": True}},
)
