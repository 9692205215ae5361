"""The metrics of the name server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.server.metrics import Family, Histogram, gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.nameserver.server import NameServer

_GAUGES = {
    "connections": "Open connections.",
    "table_changes_waiting": "Registrations and removals that wait to be applied.",
    "route_cache_bytes": "Bytes of encoded routes kept in memory.",
}


def figures(server: NameServer) -> Iterator[Family]:
    """Every metric of a name server with its current values.

    Raises:
        ClosedError: it does not run.

    Example:
        >>> list(figures(server))  # doctest: +SKIP
        [Family(name='pyrmq_nameserver_ready', ...), ...]
    """
    core = server.core
    yield gauge("pyrmq_nameserver_ready", "1 while ready.", int(server.ready()))
    uptime = core.uptime_ms() / 1000
    yield gauge("pyrmq_nameserver_uptime_seconds", "Since the start.", uptime)
    topics = server.health()["topics"]
    yield gauge("pyrmq_nameserver_topics", "Topics with a route.", topics)
    yield Family(
        "pyrmq_nameserver_broker_silent_seconds",
        "gauge",
        "Time since a broker's last registration or heartbeat.",
        ("cluster", "broker", "id", "address", "version"),
        [
            (
                (one.cluster, one.name, str(one.broker_id), one.address, one.version),
                one.silent_seconds,
            )
            for one in server.brokers()
        ],
    )
    for name, value in core.stats():
        metric = f"pyrmq_nameserver_{name}"
        if name in _GAUGES:
            yield gauge(metric, _GAUGES[name], value)
        else:
            yield Family(metric, "counter", f"{name.replace('_', ' ')}.", (), [((), value)])
    yield Family(
        "pyrmq_nameserver_request_seconds",
        "histogram",
        "From a request's arrival to its response, by kind.",
        ("kind",),
        [((kind,), Histogram(buckets, us)) for kind, buckets, us in core.latencies()],
    )
