"""The directory of cells of a cluster: one table for all members, which the first of them has begun it with.

A log of its own has it as its only record, appended on condition that there is none. So members can't
differ in where they look for a name, whatever their policies say at the moment. It doesn't change.
"""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

from broker.cluster.jetstream import JetStreamLog
from broker.cluster.log import LogUnavailable
from broker.config.broker import Settings
from broker.config.cluster import Cluster
from broker.errors import OperatorError
from broker.server.cells.layout import SINGLE, folder_of, read_marker
from broker.server.cells.table import NAME, PlacementTable, decoded_table, read_table, write_table
from broker.server.cluster.engine import engine_of

log = logging.getLogger("sluice.cells")

# A member's copy of the record.
COPY = "directory-agreed.json"
MOST_BYTES = 1 << 20
ANSWER_S = 1.0
RETRY_S = 0.3
# How long a member that has a copy waits for the log to compare it with.
COPY_S = 5.0


def check_agreement(cluster: Cluster, cells: int) -> None:
    """Raise OperatorError for a section that several cells can't have."""
    if cluster.secret_file is None:
        raise OperatorError(
            "cluster.secret_file: several cells of a cluster need it: by it members believe each other who a"
            " client is"
        )
    for name, address in (("listen", cluster.listen), ("advertise", cluster.advertised)):
        if address.port + cells - 1 > 65_535:
            raise OperatorError(f"cluster.{name}: {address}: {cells} cells need as many ports from there on")
    if len(cluster.table_log) > 64:
        raise OperatorError(f"cluster.cell: '{cluster.cell}' is too long for several cells")


def check_data(data: Path, cells: int) -> None:
    """Raise OperatorError where a directory is one of another number of cells: that doesn't change yet."""
    if (data / SINGLE).is_file():
        raise OperatorError(
            f"{data}: it is a single broker's: in a cluster it can't become one of {cells} cells; start it"
            " with cells: and without cluster: first"
        )
    marker = read_marker(data)
    if marker is not None and (marker.cells, bool(marker.drained)) != (cells, False):
        raise OperatorError(
            f"{data}: it has {marker.cells} cells: in a cluster their number doesn't change, and {cells} are"
            " asked for"
        )


def agree(settings: Settings, cells: int, patterns: tuple[tuple[str, int], ...]) -> PlacementTable:
    """Return the table of all members, and have the directory of this one go by it.

    Waits for the log; a member that has a copy of the table waits for a moment only. Raises OperatorError
    where the table is for another number of cells, or this member's data has other names elsewhere.
    """
    data = settings.data
    own, until_s = _own_table(data, cells), math.inf
    if own is not None:
        until_s = time.monotonic() + COPY_S
    begun = own or (read_table(data, cells) if _has_data(data, cells) else PlacementTable(cells, patterns))
    found = _agreed(settings.cluster, begun, until_s) or begun
    if found.cells != cells:
        raise OperatorError(
            f"cells: the cluster '{settings.cluster.cell}' has {found.cells}, and {cells} are asked for:"
            " their number is the same at all members, and doesn't change"
        )
    if (found.names, found.patterns) != (begun.names, begun.patterns) and _has_data(data, cells):
        raise OperatorError(
            f"{data}: queues of it are in other cells than the cluster has them: start with an empty"
            " directory"
        )
    warn_of_patterns(found, patterns)
    for name in (NAME, COPY):
        write_table(data, found, name)
    return found


def warn_of_patterns(agreed: PlacementTable, patterns: tuple[tuple[str, int], ...]) -> None:
    """Warn where policies say of `cell:` other than the cluster was begun with."""
    if agreed.patterns != patterns:
        log.warning(
            "policies say of cell: other than the cluster was begun with, and nodes go by that: %s",
            ", ".join(f"{pattern}: {cell}" for pattern, cell in agreed.patterns) or "no cell: at all",
        )


def _own_table(data: Path, cells: int) -> PlacementTable | None:
    return read_table(data, cells, COPY) if (data / COPY).exists() else None


def _has_data(data: Path, cells: int) -> bool:
    return any((folder_of(data, cell) / SINGLE).is_file() for cell in range(cells))


def _agreed(cluster: Cluster, table: PlacementTable, until_s: float) -> PlacementTable | None:
    """Return the record of the log, which is ``table`` where it had none; None where it doesn't answer."""
    engine = JetStreamLog(engine_of(cluster), cluster.table_log, cluster.replicas)
    said = ""
    try:
        while time.monotonic() < until_s:
            try:
                engine.prepare()
                if engine.last() == 0:
                    engine.append(table.encoded(), 0)
                    # Whatever came of it, and of others': the record says.
                    engine.outcomes(ANSWER_S)
                for entry in engine.read(1, MOST_BYTES):
                    return decoded_table(entry.data, f"the log of '{cluster.cell}'")
            except LogUnavailable as fault:
                if said != str(fault):
                    said = str(fault)
                    log.warning("the cluster's directory can't be had yet: %s", said)
            time.sleep(RETRY_S)
        return None
    finally:
        engine.close()
