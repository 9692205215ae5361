"""Samples of the brokers' counters, for the page's rates and chart."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._client import log
from pyrmq._names import V5_0_0
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.config import BROKER_STATUS
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrmq.admin import Admin
    from pyrmq.remoting import Client

INTERVAL_SECONDS = 2.0
KEPT_SAMPLES = 150
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """The brokers' answers at one time.

    Attributes:
        time_ms: When, ms since 1970.
        clock: The time by a clock that never goes back, in seconds.
        brokers: A row for each broker process.
        error: Why the cluster could not be read; empty otherwise.
    """

    time_ms: int
    clock: float
    brokers: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


class Sampler:
    """Samples every broker of a cluster every two seconds, in a separate thread."""

    def __init__(self, admin: Admin, client: Client, timeout: float) -> None:
        self._admin = admin
        self._client = client
        self._timeout = timeout
        self._samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self._history: deque[tuple[int, float, float]] = deque(maxlen=KEPT_SAMPLES)
        self._lock = threading.Lock()
        self._first = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyrmq-dashboard", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, after waiting for a request in progress."""
        self._stop.set()
        self._thread.join(self._timeout + 1)

    def latest(self) -> tuple[Sample, list[tuple[int, float, float]]]:
        """The newest sample, with rates in its rows, and time, in and out of those kept."""
        self._first.wait(2 * self._timeout)
        with self._lock:
            if not self._samples:
                return Sample(_now_ms(), time.monotonic(), error="no server answered yet"), []
            return self._samples[-1], list(self._history)

    def silent(self) -> dict[str, str]:
        """The masters that did not answer recently, by name, with the cause."""
        with self._lock:
            rows = self._samples[-1].brokers if self._samples else []
        return {
            row["broker"]: str(row["error"])
            for row in rows
            if not row["id"] and "put" not in row and "error" in row
        }

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._take()
            except (RmqError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                # One answer that cannot be read must not end the page's figures.
                log.get("pyrmq.dashboard").exception("a sample failed")
            self._first.set()
            self._stop.wait(max(0.1, INTERVAL_SECONDS - (time.monotonic() - began)))

    def _take(self) -> None:
        now_ms, clock = _now_ms(), time.monotonic()
        try:
            clusters = self._admin.cluster()
        except RmqError as error:
            with self._lock:
                self._samples.append(Sample(now_ms, clock, error=str(error)))
            return
        members = [
            (cluster, broker.name, number, address)
            for cluster, brokers in clusters.items()
            for broker in brokers
            for number, address in broker.addresses.items()
        ]
        with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(members)))) as threads:
            rows = list(threads.map(lambda member: self._row_or_error(*member), members))
        with self._lock:
            before = next((one for one in reversed(self._samples) if one.brokers), None)
            if before is not None:
                add_rates(before, rows, clock)
                sums = [sum(row.get(kind) or 0.0 for row in rows) for kind in ("in", "out")]
                self._history.append((now_ms, sums[0], sums[1]))
            self._samples.append(Sample(now_ms, clock, rows))

    def _row_or_error(self, cluster: str, name: str, number: int, address: str) -> dict[str, Any]:
        try:
            return finite(self._row(cluster, name, number, address))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # An answer that cannot be read must not remove the other brokers' rows.
            log.get("pyrmq.dashboard").exception("cannot read the figures of %s", name)
            row = {"cluster": cluster, "broker": name, "id": number, "address": address}
            return row | {"ready": False, "error": "its figures cannot be read"}

    def _row(self, cluster: str, name: str, number: int, address: str) -> dict[str, Any]:
        row: dict[str, Any] = {
            "cluster": cluster,
            "broker": name,
            "id": number,
            "address": address,
            "ready": False,
        }
        try:
            code = RequestCode.GET_BROKER_RUNTIME_INFO
            answer = self._client.ask(address, code, timeout=self._timeout)
            parsed: Any = _core.parse_json(answer.body or b"{}")
            table = parsed.get("table") or {}
            own = None
            if answer.version >= V5_0_0:
                own = self._client.request(address, BROKER_STATUS, timeout=self._timeout)
        except RmqError as error:
            return row | {"error": str(error)}
        row |= {
            "ready": table.get("brokerActive", "true") == "true",
            "version": str(table.get("brokerVersionDesc", "")).removeprefix("V").replace("_", "."),
            "disk": number_of(table, "commitLogDiskRatio"),
            "put": number_of(table, "msgPutTotalTodayNow"),
            "got": number_of(table, "msgGetTotalTodayNow"),
            "booted_ms": number_of(table, "bootTimestamp"),
        }
        if own is not None and own.code == ResponseCode.SUCCESS:
            row |= _own(_core.parse_json(own.body or b"{}"))
        return row


def add_rates(before: Sample, rows: list[dict[str, Any]], clock: float) -> None:
    """Add messages per second, in and out, to rows that have counters.

    Example:
        >>> rows = [{"address": "a", "put": 30.0, "got": 5.0}]
        >>> add_rates(Sample(0, 1.0, [{"address": "a", "put": 10.0, "got": 5.0}]), rows, 3.0)
        >>> rows[0]["in"], rows[0]["out"]
        (10.0, 0.0)
    """
    known = {row["address"]: row for row in before.brokers}
    passed = clock - before.clock
    for row in rows:
        old = known.get(row["address"], {})
        for rate, counter in (("in", "put"), ("out", "got")):
            # A restarted broker counts from zero again.
            now, then = row.get(counter), old.get(counter)
            if passed > 0 and now is not None and then is not None and now >= then:
                row[rate] = round((now - then) / passed, 1)


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row without numbers that JSON does not have.

    Example:
        >>> finite({"put": float("nan"), "got": 1.0, "memory": float("inf")})
        {'put': None, 'got': 1.0, 'memory': None}
    """
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def number_of(table: Mapping[str, Any], key: str) -> float | None:
    """A number from a broker's table of texts; None if it is missing or not finite.

    Example:
        >>> number_of({"a": "0.5", "b": "NaN"}, "a"), number_of({"b": "NaN"}, "b")
        (0.5, None)
    """
    try:
        number = float(table[key])
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _own(status: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """The figures that only pyrmq's brokers report."""
    store = status["store"]
    why = store["read_only"] or ("a disk operation failed" if store["has_failed"] else "")
    found: dict[str, Any] = {
        "pyrmq": status["version"],
        "memory": status["memory"].get("resident_bytes"),
        "disk_free": store["disk_free_bytes"],
        "log_bytes": store["max_physical_offset"] - store["min_physical_offset"],
        "clients": status["producers"] + status["consumers"],
        "waiting_pulls": status["waiting_pulls"],
    }
    if why or status["status"] != "running":
        found |= {"ready": False, "error": why or status["status"]}
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
