"""The name server's metrics for Prometheus, and answers for orchestrators, on a separate port.

`/metrics` is Prometheus' text form, `/live` says 200 while the process serves, `/ready` says 200
while clients may be sent here and 503 else. Off unless `metricsPort` is set. The text is written by
`prometheus_client` (`pip install pyrmq-rocketmq[metrics]`); figures are the core's own counters,
read at each request.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pyrmq.errors import ConfigError, RmqError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from pyrmq.nameserver.server import NameServer

_GAUGES = {
    "connections": "Connections that live.",
    "table_changes_waiting": "Registrations and departures that wait for their turn.",
    "route_cache_bytes": "Bytes of encoded routes kept in memory.",
}
_JOIN_SECONDS = 5.0
_SOCKET_SECONDS = 10.0


class Figures:
    """What a scrape reads: a collector of `prometheus_client`.

    Example:
        >>> registry.register(Figures(server))  # doctest: +SKIP
    """

    def __init__(self, server: NameServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Every metric with its current value."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        server, core = self._server, self._server.core
        yield GaugeMetricFamily("pyrmq_nameserver_ready", "1 while ready.", int(server.ready()))
        uptime = core.uptime_ms() / 1000
        yield GaugeMetricFamily("pyrmq_nameserver_uptime_seconds", "Since the start.", uptime)
        topics = server.health()["topics"]
        yield GaugeMetricFamily("pyrmq_nameserver_topics", "Topics with a route.", topics)
        labels = ("cluster", "broker", "id", "address", "version")
        silent = GaugeMetricFamily(
            "pyrmq_nameserver_broker_silent_seconds",
            "Time since a broker's last registration or heartbeat.",
            labels=labels,
        )
        for broker in server.brokers():
            named = (broker.cluster, broker.name, str(broker.broker_id), broker.address)
            silent.add_metric([*named, broker.version], broker.silent_seconds)
        yield silent
        for name, value in core.stats():
            metric = f"pyrmq_nameserver_{name}"
            if name in _GAUGES:
                yield GaugeMetricFamily(metric, _GAUGES[name], value)
            else:
                yield CounterMetricFamily(metric, f"{name.replace('_', ' ')}.", value)
        durations = HistogramMetricFamily(
            "pyrmq_nameserver_request_seconds",
            "From a request's arrival to its answer, by kind.",
            labels=("kind",),
        )
        for kind, buckets, total_us in core.latencies():
            durations.add_metric([kind], list(_cumulative(buckets)), total_us / 1e6)
        yield durations


def _cumulative(buckets: list[int]) -> Iterator[tuple[str, float]]:
    count = 0
    for at, held in enumerate(buckets):
        count += held
        bound = "+Inf" if at == len(buckets) - 1 else str(2**at / 1e6)
        yield bound, count


class MetricsServer:
    """Open the port.

    Args:
        server: the name server, which runs.
        host: address to listen on.
        port: its port.

    Raises:
        ConfigError: `prometheus_client` is not installed.
        RmqError: the port cannot be listened on.

    Example:
        >>> MetricsServer(server, "127.0.0.1", 9877).close()  # doctest: +SKIP
    """

    def __init__(self, server: NameServer, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry
        except ImportError as error:
            raise ConfigError(
                "`metricsPort` needs the package prometheus-client: "
                "pip install pyrmq-rocketmq[metrics]"
            ) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Figures(server))
        handler = type("Handler", (_Handler,), {"server_seen": server, "registry": registry})
        try:
            self._http = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise RmqError(
                f"cannot listen on {host}:{port} (metricsPort): {error.strerror}"
            ) from error
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, name="pyrmq-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._http.server_address[1])

    def close(self) -> None:
        """Close the port, after the answers under way."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(_JOIN_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """One request of a scraper or an orchestrator."""

    server_seen: NameServer
    registry: Any
    timeout = _SOCKET_SECONDS

    def do_GET(self) -> None:
        """Answer one path."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/live":
            self._say(200, "text/plain", b"live\n")
        elif path == "/ready":
            ready = self.server_seen.ready()
            self._say(200 if ready else 503, "text/plain", b"ready\n" if ready else b"not ready\n")
        else:
            self._say(404, "text/plain", b"there are /metrics, /live and /ready\n")

    def _metrics(self) -> None:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        try:
            text = generate_latest(self.registry)
        except RmqError as error:
            self._say(503, "text/plain", f"{error}\n".encode())
            return
        self._say(200, CONTENT_TYPE_LATEST, text)

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: an orchestrator asks every few seconds."""
