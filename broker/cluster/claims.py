"""A take-over's payload: what the new owner says of itself, as a JSON object.

``member`` is its name. ``begins`` is there where its directory has something that no log has, so that a
snapshot of it is to be the log's beginning.
"""

from __future__ import annotations

import json


def beginning(about: bytes) -> bytes:
    """Return what a member says of itself, and that the log is to begin with its directory."""
    return json.dumps({**json.loads(about), "begins": True}).encode()


def claimed(payload: bytes) -> tuple[str, bool]:
    """Return who has taken over ('' where that isn't told), and whether the log is to begin with its data."""
    try:
        said = json.loads(payload)
    except ValueError:
        return "", False
    if not isinstance(said, dict):
        return "", False
    return str(said.get("member", "")), said.get("begins") is True
