"""The figures of a name server or broker, with the names of its metrics port."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from opentelemetry import metrics

__all__ = ["export_server"]

_NAME = "pyrmq"
_FRESH_SECONDS = 0.5
"""How long a reading is used, in seconds: a collection reads one metric after the other."""


class _Family(Protocol):
    """`pyrmq.server.metrics.Family`, which this layer does not import."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> Sequence[tuple[tuple[str, ...], Any]]: ...


class _Server(Protocol):
    def figures(self) -> Iterable[_Family]: ...


def export_server(server: _Server, meter_provider: metrics.MeterProvider | None = None) -> None:
    """Observe the figures of a running server, under the names of its metrics port.

    Counters keep their names without `_total`. A histogram becomes two counters, `_count` and
    `_sum` in seconds. While the server is stopped there are no figures.

    Args:
        server: a running `Broker` or `NameServer`.
        meter_provider: The global one without it.

    Raises:
        ClosedError: it does not run.

    Example:
        >>> from pyrmq import NameServer
        >>> with NameServer(listen_port=0) as server:
        ...     export_server(server)
    """
    meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
    readings = _Readings(server)
    for family in readings.now().values():
        if family.kind == "histogram":
            meter.create_observable_counter(
                f"{family.name}_count", [_parts(readings, family.name, 0)], "", family.text
            )
            meter.create_observable_counter(
                f"{family.name}_sum", [_parts(readings, family.name, 1)], "s", family.text
            )
            continue
        create = (
            meter.create_observable_counter
            if family.kind == "counter"
            else meter.create_observable_gauge
        )
        create(family.name, [_values(readings, family.name)], "", family.text)


class _Readings:
    """Reads all figures once for a whole collection."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        # Guards the last reading and its time.
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}
        self._at = -_FRESH_SECONDS

    def now(self) -> dict[str, _Family]:
        with self._lock:
            if time.monotonic() - self._at >= _FRESH_SECONDS:
                self._families = {one.name: one for one in self._server.figures()}
                self._at = time.monotonic()
            return self._families


_Read = Callable[[metrics.CallbackOptions], Iterable[metrics.Observation]]


def _values(readings: _Readings, name: str) -> _Read:
    def read(_: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        family = readings.now()[name]
        for values, value in family.rows:
            yield metrics.Observation(value, dict(zip(family.labels, values, strict=True)))

    return read


def _parts(readings: _Readings, name: str, part: int) -> _Read:
    def read(_: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        family = readings.now()[name]
        for values, value in family.rows:
            labels = dict(zip(family.labels, values, strict=True))
            yield metrics.Observation((sum(value.buckets), value.sum_us / 1e6)[part], labels)

    return read
