"""AMQP 1.0 on Qpid Proton: the only room that knows a Proton type.

The control plane (open, attach, detach, close) is Python on Proton's own classes; deliveries and
flow frames are handled by the compiled ``wire`` module, which calls Proton's C functions. It takes
them from the one copy of Proton in the process, ``cproton_ffi``, which therefore is loaded here
first and with its symbols visible.
"""

from __future__ import annotations

import ctypes
import os

import cproton_ffi

from broker.errors import OperatorError

# Promoting it works whether or not somebody has imported Proton before.
ctypes.CDLL(cproton_ffi.__file__, mode=os.RTLD_GLOBAL | os.RTLD_NOW)

try:
    from broker.amqp.links import consumer, relay, secure  # noqa: F401 - a missing symbol must be said here
except ImportError as fault:
    if "undefined symbol" not in str(fault):
        raise
    symbol = str(fault).rsplit("undefined symbol:", 1)[-1].strip()
    raise OperatorError(
        f"python-qpid-proton lacks the function {symbol}; Sluice needs version 0.40 or a compatible newer one"
    ) from fault
