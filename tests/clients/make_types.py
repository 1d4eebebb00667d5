"""Writes types.json: a case for every AMQP type (AMQP 1.0 §1.6) at its edges, in each section."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

Value = dict[str, Any]


def value(kind: str, content: Any) -> Value:
    return {"type": kind, "value": content}


def cases() -> list[dict[str, Any]]:
    plain: dict[str, Value] = {
        "null": value("null", None),
        "true": value("boolean", True),
        "false": value("boolean", False),
        "char": value("char", "128512"),
        "timestamp": value("timestamp", "1700000000123"),
        "timestamp-negative": value("timestamp", "-1"),
        "uuid": value("uuid", "00112233-4455-6677-8899-aabbccddeeff"),
        "binary": value("binary", bytes(range(256)).hex()),
        "binary-empty": value("binary", ""),
        "string": value("string", "grün, 東京, 😀"),
        "string-long": value("string", "x" * 300),
        "string-empty": value("string", ""),
        "symbol": value("symbol", "a-symbol:x"),
        "symbol-long": value("symbol", "s" * 300),
    }
    for kind, bits in (("ubyte", 8), ("ushort", 16), ("uint", 32), ("ulong", 64)):
        for name, number in (("zero", 0), ("small", 200), ("max", 2**bits - 1)):
            plain[f"{kind}-{name}"] = value(kind, str(number))
    for kind, bits in (("byte", 8), ("short", 16), ("int", 32), ("long", 64)):
        for name, number in (("min", -(2 ** (bits - 1))), ("minus", -1), ("max", 2 ** (bits - 1) - 1)):
            plain[f"{kind}-{name}"] = value(kind, str(number))
    for name, number in (("third", 1 / 3), ("infinite", float("inf")), ("minus-zero", -0.0)):
        plain[f"float-{name}"] = value("float", struct.pack(">f", number).hex())
        plain[f"double-{name}"] = value("double", struct.pack(">d", number).hex())
    plain["decimal32"] = value("decimal32", "22500001")
    plain["decimal64"] = value("decimal64", "2238000000000001")
    plain["decimal128"] = value("decimal128", "22080000000000000000000000000001")
    nested = {
        "list": value("list", [plain["int-min"], plain["string"], value("list", [])]),
        "list-empty": value("list", []),
        "map": value("map", [[plain["string"], plain["long-max"]], [plain["symbol"], plain["null"]]]),
        "map-empty": value("map", []),
        "array-int": value("array", {"of": "int", "values": ["1", "-2", "3"]}),
        "array-symbol": value("array", {"of": "symbol", "values": ["a", "bb"]}),
        "described": value("described", {"descriptor": value("symbol", "x:y"), "value": plain["string"]}),
        "described-number": value(
            "described",
            {"descriptor": value("ulong", "79228162514"), "value": value("list", [plain["true"]])},
        ),
    }
    found = [{"name": name, "section": "value", "value": each} for name, each in (plain | nested).items()]
    for name in ("binary", "binary-empty"):
        found.append({"name": f"data-{name}", "section": "data", "value": plain[name]})
    found.append({"name": "sequence", "section": "sequence", "value": nested["list"]})
    # Application properties hold simple types only (§3.2.5).
    for name, each in plain.items():
        found.append({"name": f"property-{name}", "section": "application-properties", "value": each})
    for name in ("symbol", "ulong-max", "map", "list"):
        for section in ("message-annotations", "footer"):
            found.append({"name": f"{section}-{name}", "section": section, "value": (plain | nested)[name]})
    for name in ("string", "ulong-max", "uuid", "binary"):
        for section in ("message-id", "correlation-id"):
            found.append({"name": f"{section}-{name}", "section": section, "value": plain[name]})
    return found


if __name__ == "__main__":
    text = "[\n" + ",\n".join(json.dumps(case) for case in cases()) + "\n]\n"
    Path(__file__).with_name("types.json").write_text(text)
