"""Makes Proton's C functions visible to the compiled files of this room; imported before any of them.

``cproton_ffi``, the one copy of Proton in the process, exports them. Promoting it to the global
symbol table works whether or not someone has imported it before.
"""

from __future__ import annotations

import ctypes
import os

import cproton_ffi


def _promote() -> ctypes.CDLL:
    return ctypes.CDLL(cproton_ffi.__file__, mode=os.RTLD_GLOBAL | os.RTLD_NOW)


def require(*symbols: str) -> None:
    """Raises ImportError, naming what is missing, unless Proton exports every one of ``symbols``."""
    missing = [name for name in symbols if not hasattr(LIBRARY, name)]
    if missing:
        raise ImportError(
            f"python-qpid-proton at {cproton_ffi.__file__} does not export {', '.join(missing)}: "
            "reinstall it from source (pip install --no-binary :all: python-qpid-proton)"
        )


LIBRARY = _promote()
