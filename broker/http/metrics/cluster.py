"""Prometheus families of a replicated cell as one member sees it, on `/metrics` of owner and standbys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.http.metrics.exposition import family, labels
from broker.manage.cluster import OWNER_ROLE, ClusterStatus


@dataclass(frozen=True, slots=True)
class ClusterFamily:
    """One family, and how its value is read."""

    name: str
    text: str
    value: Callable[[ClusterStatus], float]


def _position(status: ClusterStatus) -> float:
    return status.own.applied if status.own is not None else 0


def _lag_s(status: ClusterStatus) -> float:
    return status.own.lag_s if status.own is not None else 0.0


OF_CLUSTER = (
    ClusterFamily(
        "sluice_cluster_owner", "1 at the member that owns the cell", lambda it: it.role == OWNER_ROLE
    ),
    ClusterFamily("sluice_cluster_epoch", "The epoch this member has come to", lambda it: it.epoch),
    ClusterFamily("sluice_cluster_position", "The last record of the log this member has applied", _position),
    ClusterFamily(
        "sluice_cluster_log_position",
        "The last record of the log that this member knows of",
        lambda it: it.engine.position,
    ),
    ClusterFamily(
        "sluice_cluster_lag_seconds",
        "Time since this member had applied everything there was, 0 at the owner",
        _lag_s,
    ),
    ClusterFamily("sluice_cluster_members", "Members that are there", lambda it: len(it.present)),
    ClusterFamily(
        "sluice_cluster_suspended",
        "1 while the owner confirms nothing, because the log doesn't answer",
        lambda it: bool(it.suspended),
    ),
    ClusterFamily(
        "sluice_cluster_engine_reachable",
        "1 while this member reaches a server of the log",
        lambda it: it.engine.reachable,
    ),
    ClusterFamily(
        "sluice_cluster_takeovers_total", "How often the cell got another owner", lambda it: it.take_overs
    ),
)


def of_cluster(status: ClusterStatus, label: str = "cell") -> bytes:
    """Return all families, one sample each.

    ``label`` is that of the cell's name: of several cells each is labelled with its number elsewhere.
    """
    written = labels((label, status.cell))
    return b"".join(family(each.name, each.text, [(written, each.value(status))]) for each in OF_CLUSTER)
