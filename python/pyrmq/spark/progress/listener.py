"""Shows what streaming queries do: a line per batch, JSON lines, or metrics for Prometheus."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyrmq.errors import ConfigError
from pyrmq.spark.progress.figures import BatchFigures, figures_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["Listener", "listen"]

_log = logging.getLogger("pyrmq.spark")


class Listener(StreamingQueryListener):
    """Receives the progress of every query of a session; made by `listen`.

    Args:
        spark: the session.
        callbacks: each gets the figures of each batch of a query that reads from topics.
    """

    def __init__(
        self, spark: SparkSession, callbacks: list[Callable[[BatchFigures], None]]
    ) -> None:
        self._session = spark
        self._callbacks = callbacks
        self._last: dict[str, BatchFigures] = {}
        self.metrics_address: str | None = None
        self._close: list[Callable[[], object]] = []
        spark.streams.addListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the first batch says more."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Pass on the figures of a batch. Errors are logged: Spark would call no other listener."""
        try:
            key = str(event.progress.id)
            found = figures_of(event.progress, self._last.get(key))
            if found is None:
                return
            self._last[key] = found
            for callback in self._callbacks:
                callback(found)
        except Exception:  # noqa: BLE001 - a faulty line must not end the query
            _log.exception("the progress of a query could not be shown")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: what waits is in the last batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query."""
        self._last.pop(str(event.id), None)

    def close(self) -> None:
        """Stop listening."""
        self._session.streams.removeListener(self)
        while self._close:
            self._close.pop()()


def listen(
    spark: SparkSession,
    output: TextIO | None = None,
    *,
    as_json: bool = False,
    metrics_port: int | None = None,
    on_batch: Callable[[BatchFigures], None] | None = None,
) -> Listener:
    """Show each batch of the session's queries that read from topics, in one line.

    A line has rows, rows per second, the lag by queue, the maximum age of the oldest waiting
    message, and when the query will have caught up.

    Args:
        spark: the session.
        output: where lines go; None for standard error.
        as_json: one JSON object per line.
        metrics_port: also serve the figures for Prometheus at this port of 127.0.0.1, 0 for any
            (extra ``metrics``); `Listener.metrics_address` says where.
        on_batch: call this function instead of writing lines.

    Returns:
        The listener; `Listener.close` ends it.

    Raises:
        ConfigError: prometheus-client is missing.

    Example:
        >>> listen(spark)  # doctest: +SKIP
        orders: batch 7, 30,000 rows in 1.2 s, 25,000 rows/s, no lag
    """
    stream = output if output is not None else sys.stderr

    def write(figures: BatchFigures) -> None:
        text = json.dumps(figures.as_json()) if as_json else str(figures)
        stream.write(text + "\n")
        stream.flush()

    callbacks = [on_batch if on_batch is not None else write]
    if metrics_port is None:
        return Listener(spark, callbacks)
    exporter = _Exporter(metrics_port)
    made = Listener(spark, [*callbacks, exporter.record])
    made.metrics_address = exporter.address
    made._close.append(exporter.close)
    return made


class _Exporter:
    """The figures for Prometheus."""

    def __init__(self, port: int) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise ConfigError(
                "prometheus-client is missing: pip install pyrmq-rocketmq[metrics]"
            ) from error
        registry = prometheus.CollectorRegistry()
        of_query, of_queue = ["query"], ["query", "topic", "broker", "queue"]

        def made(kind: Any, name: str, text: str, labels: list[str]) -> Any:  # noqa: ANN401
            return kind(f"pyrmq_spark_{name}", text, labels, registry=registry)

        counter, gauge = prometheus.Counter, prometheus.Gauge
        self.rows = made(counter, "rows", "Rows read.", of_query)
        self.batches = made(counter, "batches", "Batches done.", of_query)
        self.seconds = made(gauge, "batch_seconds", "Duration of the last batch.", of_query)
        self.lag = made(gauge, "lag", "Offsets that wait to be read.", of_query)
        self.oldest = made(
            gauge, "oldest_seconds", "Maximum age of the oldest waiting message.", of_query
        )
        self.by_queue = made(gauge, "queue_lag", "Offsets that wait in a queue.", of_queue)
        self._shown: dict[str, set[tuple[str, ...]]] = {}
        self._server, self._thread = prometheus.start_http_server(
            port, addr="127.0.0.1", registry=registry
        )
        self.address = f"127.0.0.1:{self._server.server_port}"

    def record(self, figures: BatchFigures) -> None:
        """Record the figures of a batch."""
        query, lag = figures.query, figures.lag
        self.rows.labels(query).inc(figures.rows)
        self.batches.labels(query).inc()
        self.seconds.labels(query).set(figures.seconds)
        self.oldest.labels(query).set(lag.oldest_s or 0)
        if lag.rows is None:
            return
        self.lag.labels(query).set(lag.rows)
        shown = self._shown.setdefault(query, set())
        waiting: dict[tuple[str, ...], int] = {
            (q.topic, q.broker, str(q.queue_id)): rows for q, rows in lag.queues.items()
        }
        for labels in shown | waiting.keys():
            self.by_queue.labels(query, *labels).set(waiting.get(labels, 0))
        shown |= waiting.keys()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
