"""The notation of ../types.json and Proton's values."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

Value = dict[str, Any]

_NUMBERS = {
    "ubyte": ubyte,
    "ushort": ushort,
    "uint": uint,
    "ulong": ulong,
    "byte": byte,
    "short": short,
    "int": int32,
    "long": int,
    "timestamp": timestamp,
}
_ARRAYS = {"int": Data.INT, "symbol": Data.SYMBOL}


def python_of(value: Value) -> Any:
    """What the library sends for it."""
    kind, content = value["type"], value["value"]
    if kind in _NUMBERS:
        return _NUMBERS[kind](int(content))
    if kind == "list":
        return [python_of(each) for each in content]
    if kind == "map":
        return {python_of(key): python_of(each) for key, each in content}
    if kind == "array":
        items = [python_of({"type": content["of"], "value": each}) for each in content["values"]]
        undescribed: Any = UNDESCRIBED
        return Array(undescribed, _ARRAYS[content["of"]], *items)
    if kind == "described":
        return Described(python_of(content["descriptor"]), python_of(content["value"]))
    return _SIMPLE[kind](content)


_SIMPLE: dict[str, Any] = {
    "null": lambda _: None,
    "boolean": bool,
    "float": lambda text: float32(struct.unpack(">f", bytes.fromhex(text))[0]),
    "double": lambda text: struct.unpack(">d", bytes.fromhex(text))[0],
    "decimal32": lambda text: decimal32(int(text, 16)),
    "decimal64": lambda text: decimal64(int(text, 16)),
    "decimal128": lambda text: decimal128(bytes.fromhex(text)),
    "char": lambda text: char(chr(int(text))),
    "uuid": uuid.UUID,
    "binary": bytes.fromhex,
    "string": str,
    "symbol": symbol,
}


def value_of(found: Any) -> Value:
    """What came, in the notation."""
    for kind, shown in _SHOWN:
        if isinstance(found, kind):
            name, text = shown(found)
            return {"type": name, "value": text}
    raise TypeError(f"{type(found)} is in no notation")


def _array(found: Any) -> tuple[str, Any]:
    of = {code: name for name, code in _ARRAYS.items()}[found.type]
    return "array", {"of": of, "values": [value_of(each)["value"] for each in found.elements]}


def _map(found: Any) -> tuple[str, Any]:
    return "map", [[value_of(key), value_of(each)] for key, each in found.items()]


# Those that are a kind of another stand before it.
_SHOWN: tuple[tuple[Any, Any], ...] = (
    (type(None), lambda _: ("null", None)),
    (bool, lambda it: ("boolean", it)),
    *((_NUMBERS[name], lambda it, name=name: (name, str(int(it)))) for name in _NUMBERS if name != "long"),
    (decimal32, lambda it: ("decimal32", f"{int(it):08x}")),
    (decimal64, lambda it: ("decimal64", f"{int(it):016x}")),
    (decimal128, lambda it: ("decimal128", bytes(it).hex())),
    (float32, lambda it: ("float", struct.pack(">f", it).hex())),
    (float, lambda it: ("double", struct.pack(">d", it).hex())),
    (char, lambda it: ("char", str(ord(it)))),
    (symbol, lambda it: ("symbol", str(it))),
    (uuid.UUID, lambda it: ("uuid", str(it))),
    (str, lambda it: ("string", it)),
    ((bytes, memoryview), lambda it: ("binary", bytes(it).hex())),
    (int, lambda it: ("long", str(it))),
    (
        Described,
        lambda it: ("described", {"descriptor": value_of(it.descriptor), "value": value_of(it.value)}),
    ),
    (Array, _array),
    (list, lambda it: ("list", [value_of(each) for each in it])),
    (dict, _map),
)
