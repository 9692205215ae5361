"""The metrics port of a server: Prometheus text, and answers for orchestrators.

`/metrics` returns Prometheus' text form, `/live` 200 while the process serves, `/ready` 200 while
clients may be sent here, and 503 otherwise. Off unless `metricsPort` is set. Figures are the core's
own counters, read at each request. A broker and a name server of one process may share a port.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyrmq.server.security.tls import MetricsTls

_JOIN_SECONDS = 5.0
_SOCKET_SECONDS = 10.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram(NamedTuple):
    """Counts by duration: up to 1, 2, 4, 8 ... microseconds; the last counts everything longer."""

    buckets: Sequence[int]
    sum_us: int


class Family(NamedTuple):
    """One metric with all its series.

    Attributes:
        name: its name, without `_total` for a counter.
        kind: `counter`, `gauge` or `histogram`.
        text: its description.
        labels: the names of its labels.
        rows: for each series, the values of its labels and its value.
    """

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
    rows: Sequence[tuple[tuple[str, ...], float | Histogram]]


class Watched(Protocol):
    """A server with figures."""

    def figures(self) -> Iterable[Family]:
        """Every metric with its current values."""

    def ready(self) -> bool:
        """Whether clients may be sent there."""


def gauge(name: str, text: str, value: float) -> Family:
    """A gauge without labels.

    Example:
        >>> gauge("pyrmq_ready", "1 while ready.", 1).rows
        [((), 1)]
    """
    return Family(name, "gauge", text, (), [((), value)])


class MetricsServer:
    """Open the port, or join the server that has opened it in this process.

    Args:
        server: the running server.
        host: address to listen on; empty: every address.
        port: its port.
        tls: its certificate; None: plain HTTP.

    Raises:
        RmqError: the port cannot be opened, or the server that has it open uses other TLS.

    Example:
        >>> MetricsServer(server, "127.0.0.1", 9877).close()  # doctest: +SKIP
    """

    def __init__(
        self, server: Watched, host: str | None, port: int, tls: MetricsTls | None = None
    ) -> None:
        self._server = server
        self._where = (host or "", port)
        with _LOCK:
            found = _PORTS.get(self._where)
            if found is not None and _files(found.tls) != _files(tls):
                raise RmqError(
                    f"two servers share the metrics port {port} and differ in "
                    "`tls.metrics.enable` or its certificates: give both the same"
                )
            self._port = found if found is not None else _Port(*self._where, tls)
            _PORTS[self._where] = self._port
            self._port.servers = (*self._port.servers, server)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._port.http.server_address[1])

    def close(self) -> None:
        """Leave the port; the last server closes it, after responses in progress."""
        with _LOCK:
            left = tuple(one for one in self._port.servers if one is not self._server)
            self._port.servers = left
            if not left:
                _PORTS.pop(self._where, None)
                self._port.close()


def _files(tls: MetricsTls | None) -> tuple[str | None, ...] | None:
    return None if tls is None else tls.files


class _Http(ThreadingHTTPServer):
    """Performs a handshake in the thread of its connection, limited by a timeout."""

    def __init__(
        self, where: tuple[str, int], handler: type[_Handler], tls: MetricsTls | None
    ) -> None:
        self._tls = tls
        super().__init__(where, handler)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; no byte is read yet."""
        plain, peer = super().get_request()
        if self._tls is None:
            return plain, peer
        context = self._tls.context()
        return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), peer

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - a socket
        """Serve a connection, after its handshake and the check of its certificate."""
        if self._tls is not None:
            request.settimeout(_SOCKET_SECONDS)
            request.do_handshake()
            refusal = self._tls.refusal(request)
            if refusal is not None:
                raise PermissionError(refusal)
        super().finish_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error that ended a connection: a peer that broke off, a failed handshake."""
        from pyrmq._client import log

        log.get("pyrmq.metrics").debug("the connection of %s ended", client_address, exc_info=True)


class _Port:
    """A port that one or more servers of this process share."""

    def __init__(self, host: str, port: int, tls: MetricsTls | None) -> None:
        self.servers: tuple[Watched, ...] = ()
        self.tls = tls
        handler = type("Handler", (_Handler,), {"seen": self})
        try:
            self.http = _Http((host, port), handler, tls)
        except OSError as error:
            raise RmqError(
                f"cannot listen on {host or '*'}:{port} (metricsPort): {error.strerror}"
            ) from error
        self.http.daemon_threads = True
        self._thread = threading.Thread(
            target=self.http.serve_forever, name="pyrmq-metrics", daemon=True
        )
        self._thread.start()

    def text(self) -> str:
        """Every metric of the servers."""
        return exposition(chain.from_iterable(server.figures() for server in self.servers))

    def ready(self) -> bool:
        """Whether all servers are ready."""
        return all(server.ready() for server in self.servers)

    def close(self) -> None:
        """Close the port, after responses in progress."""
        self.http.shutdown()
        self.http.server_close()
        self._thread.join(_JOIN_SECONDS)


# Guards the ports that servers of this process have open.
_LOCK = threading.Lock()
_PORTS: dict[tuple[str, int], _Port] = {}


def exposition(families: Iterable[Family]) -> str:
    """Families as Prometheus' text form, version 0.0.4.

    Written here because `prometheus_client` makes an object of each sample: a broker with 1,000
    topics took it up to five times as long.

    Example:
        >>> print(exposition([gauge("pyrmq_ready", "1 while ready.", 1)]), end="")
        # HELP pyrmq_ready 1 while ready.
        # TYPE pyrmq_ready gauge
        pyrmq_ready 1
    """
    lines: list[str] = []
    for family in families:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        lines += (f"# HELP {name} {family.text}", f"# TYPE {name} {family.kind}")
        inner = ",".join(f'{label}="%s"' for label in family.labels)
        sample = f"{name}{{{inner}}} %s" if inner else f"{name} %s"
        for values, value in family.rows:
            escaped = [
                one.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for one in values
            ]
            if isinstance(value, Histogram):
                labels = ",".join(map('{}="{}"'.format, family.labels, escaped))
                lines += _histogram(name, labels, value)
            else:
                lines.append(sample % (*escaped, value))
    lines.append("")
    return "\n".join(lines)


def _histogram(name: str, labels: str, value: Histogram) -> Iterator[str]:
    count = 0
    before = f"{labels}," if labels else ""
    for at, held in enumerate(value.buckets):
        count += held
        bound = "+Inf" if at == len(value.buckets) - 1 else str(2**at / 1e6)
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}'
    yield f"{name}_count{{{labels}}} {count}"
    yield f"{name}_sum{{{labels}}} {value.sum_us / 1e6}"


class _Handler(BaseHTTPRequestHandler):
    """One request of a scraper or an orchestrator."""

    seen: _Port
    timeout = _SOCKET_SECONDS

    def do_GET(self) -> None:
        """Answer one path."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/live":
            self._say(200, "text/plain", b"live\n")
        elif path == "/ready":
            ready = self.seen.ready()
            self._say(200 if ready else 503, "text/plain", b"ready\n" if ready else b"not ready\n")
        else:
            self._say(404, "text/plain", b"there are /metrics, /live and /ready\n")

    def _metrics(self) -> None:
        try:
            text = self.seen.text()
        except RmqError as error:
            self._say(503, "text/plain", f"{error}\n".encode())
            return
        self._say(200, _CONTENT_TYPE, text.encode())

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: an orchestrator sends a request every few seconds."""
