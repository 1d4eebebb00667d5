"""What `/metrics` answers: the series of one survey, family by family.

Series are of the broker, its queues, topics, bridges, routes and channels, and of so many named readers of
streams. Subscriptions and links come and go with clients and would grow without bound: they have series only
where settings ask for them.
Temporary nodes have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from broker.http.metrics import families
from broker.http.metrics.cluster import of_cluster
from broker.http.metrics.exposition import CONTENT_TYPE, Table, family, head, label, labels
from broker.http.metrics.families import Family
from broker.manage.stats import SETTLED, SETTLED_HELP
from broker.manage.survey import COLUMNS, Named, Row, SurveyResult
from broker.manage.views import BrokerView, ConsumerView, ProducerView

__all__ = ["CONTENT_TYPE", "render"]

_PLACE = {path: number for number, path in enumerate(COLUMNS)}
_PROCESS = CollectorRegistry()
ProcessCollector(registry=_PROCESS)


def render(found: SurveyResult) -> list[bytes]:
    """What `/metrics` answers, in parts: those of the broker first."""
    return list(_render(found))


def _render(found: SurveyResult) -> Iterator[bytes]:
    yield from _broker(found.broker)
    yield _authentications(found)
    yield from _tls(found)
    yield _log(found)
    yield _limits(found)
    if found.cluster is not None:
        yield of_cluster(found.cluster, "log" if found.cluster.cells else "cell")
    yield generate_latest(_PROCESS)
    written = [label("queue", each.name) for each in found.nodes]
    yield from _nodes("sluice_queue_", written, found.rows)
    yield _info(written, found.nodes)
    if found.subscriptions:
        named = [_subscription_labels(each) for each in found.subscriptions]
        yield from _nodes("sluice_subscription_", named, found.subscription_rows)
    yield from _readers(found)
    yield from _views(families.PER_BRIDGE, "bridge", found.bridges)
    yield from _views(families.PER_ROUTE, "route", found.routes)
    yield from _views(families.PER_CHANNEL, "channel", found.channels)
    yield from _links(families.PER_PRODUCER, found.producers)
    yield from _links(families.PER_CONSUMER, found.consumers)


def _broker(broker: BrokerView) -> Iterator[bytes]:
    yield family("sluice_build_info", "Always 1; the version", [(labels(("version", broker.version)), 1)])
    for each in families.OF_BROKER:
        yield family(each.name, each.text, [("", _value(broker, each.path))])
    settled = [(labels(("outcome", each)), getattr(broker.totals, each)) for each in families.OUTCOMES]
    yield family("sluice_messages_settled_total", SETTLED_HELP, settled)
    states = [(labels(("state", each)), broker.store.state == each) for each in families.STORE_STATES]
    yield family("sluice_store_state", "1 for the state the store is in", states)


def _authentications(found: SurveyResult) -> bytes:
    samples = [
        (labels(("mechanism", mechanism), ("outcome", outcome)), count)
        for (mechanism, outcome), count in sorted(found.authentications.items())
    ]
    return family("sluice_authentications_total", "Clients let in and turned away, by mechanism", samples)


def _tls(found: SurveyResult) -> Iterator[bytes]:
    if found.tls is None:
        return
    completed = [(labels(("version", name)), count) for name, count in sorted(found.tls.completed.items())]
    failed = [(labels(("reason", name)), count) for name, count in sorted(found.tls.failed.items())]
    yield family("sluice_tls_handshakes_total", "TLS handshakes that were completed, by version", completed)
    yield family("sluice_tls_handshake_failures_total", "TLS handshakes that failed, by reason", failed)
    expires = [("", found.tls.expires)]
    yield family("sluice_tls_certificate_expiry_seconds", "When the broker's certificate expires", expires)


def _limits(found: SurveyResult) -> bytes:
    samples = [(labels(("limit", limit)), count) for limit, count in found.refusals.items()]
    refusals = family("sluice_limit_refusals_total", "How often a limit of one client was reached", samples)
    longest = [("", found.longest_turn_s)]
    text = "The loop's longest turn since the last scrape"
    return refusals + family("sluice_loop_turn_seconds_max", text, longest)


def _log(found: SurveyResult) -> bytes:
    lines = [(labels(("level", level)), count) for level, count in found.log_lines.items()]
    left_out = family("sluice_log_lines_left_out_total", "Lines left out", [("", found.log_left_out)])
    return family("sluice_log_lines_total", "Lines written to the log", lines) + left_out


def _nodes(prefix: str, written: Sequence[str], rows: Sequence[Row]) -> Iterator[bytes]:
    """A family of every column, and one of the outcomes; ``written`` are the labels without braces."""
    table = Table([f"{{{each}}}" for each in written])
    for each in families.PER_NODE:
        place = _PLACE[each.path]
        yield head(prefix + each.name, each.text).encode()
        yield table.samples(prefix + each.name, [row[place] for row in rows], sparse=each.sparse)
    name = prefix + SETTLED
    yield head(name, SETTLED_HELP).encode()
    for outcome in families.OUTCOMES:
        place = _PLACE[f"counters.{outcome}"]
        of_outcome = Table([f'{{{each},outcome="{outcome}"}}' for each in written])
        yield of_outcome.samples(name, [row[place] for row in rows])


def _info(written: Sequence[str], nodes: Sequence[Named]) -> bytes:
    durable = ("false", "true")
    pairs = zip(written, nodes, strict=True)
    samples = ((f'{{{of},kind="{each.kind}",durable="{durable[each.durable]}"}}', 1) for of, each in pairs)
    return family("sluice_queue_info", "Always 1; what it is", samples)


def _subscription_labels(named: Named) -> str:
    return f"{label('topic', named.address)},{label('subscription', named.name)}"


def _readers(found: SurveyResult) -> Iterator[bytes]:
    """Families of named readers; none at all where there are none of them."""
    if found.readers:
        lag, left_out = families.READER_LAG, families.READERS_LEFT_OUT
        samples = (
            (labels(("stream", each.stream), ("reader", each.reader)), each.lag_msgs)
            for each in found.readers
        )
        yield family(lag.name, lag.text, samples)
        yield family(left_out.name, left_out.text, [("", found.readers_left_out)])


def _views(table: Iterable[Family], name: str, views: Sequence[object]) -> Iterator[bytes]:
    """Families of things with a name; none at all where there are none of them."""
    for each in table if views else ():
        samples = ((labels((name, view.name)), _value(view, each.path)) for view in views)  # type: ignore[attr-defined]
        yield family(each.name, each.text, samples)


def _links(
    table: Iterable[Family], links: Sequence[ProducerView] | Sequence[ConsumerView]
) -> Iterator[bytes]:
    """A relay has a view for each node it sent to; no two links have one id."""
    for each in table if links else ():
        samples = (
            (
                labels(
                    *(("queue", link.node), ("container", link.container)),
                    *(("link", link.link), ("id", link.id)),
                ),
                _value(link, each.path),
            )
            for link in links
        )
        yield family(each.name, each.text, samples)


def _value(view: object, path: str) -> float:
    """What the view has now; how many, where it has a list; 1 for the state that is as it should be."""
    value = attrgetter(path)(view)
    if isinstance(value, tuple):
        return len(value)
    if isinstance(value, str):
        return value in families.UP
    return float(value) if isinstance(value, float) else int(value)
