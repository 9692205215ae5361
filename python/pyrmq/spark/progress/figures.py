"""Computes a streaming query's lag from its progress, without Spark.

Spark cannot show metrics of a Python source, but its progress has the offsets: the lag is
``latestOffset`` minus ``endOffset``. Each end also has the store time of the message before it, so
the waiting messages are at most that old.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyrmq._tables.errors import OffsetError
from pyrmq._tables.offsets import Position, Queue, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchFigures", "Lag", "figures_of", "lag"]


@dataclass(frozen=True, kw_only=True)
class Lag:
    """The lag of a query behind its topics.

    Attributes:
        rows: offsets that wait in all queues; None if Spark does not report them (4.1).
        queues: offsets that wait, by queue, without queues that have none.
        oldest_s: upper bound of the age of the oldest waiting message, in seconds; None if none
            waits or it is not known.
    """

    rows: int | None
    queues: dict[Queue, int] = field(default_factory=dict)
    oldest_s: float | None = None

    def __str__(self) -> str:
        """Spell the lag out, the queue that is furthest behind first."""
        if self.rows is None:
            return "lag unknown"
        if not self.rows:
            return "no lag"
        text = f"lag {self.rows:,}"
        if self.oldest_s is not None:
            text += f", oldest waits at most {self.oldest_s:.1f} s"
        worst = sorted(self.queues.items(), key=lambda item: (-item[1], item[0]))
        named = [f"{q.topic}/{q.broker}/{q.queue_id}: {rows:,}" for q, rows in worst[:3]]
        if len(worst) > len(named):
            named.append(f"{len(worst) - len(named)} more")
        return f"{text} ({', '.join(named)})"


@dataclass(frozen=True, kw_only=True)
class BatchFigures:
    """One batch of a streaming query.

    Attributes:
        query: name of the query, or its id.
        batch: its number.
        rows: rows that it read.
        rows_per_second: rows that the query processed per second in this batch.
        seconds: duration of the batch.
        lag: the lag when it ended.
        seconds_left: time until the query has caught up, at the rate between the last two batches;
            None if unknown, or if it does not catch up.
        observed: values that the query observed, by name (`DataFrame.observe`).
        dropped: rows that operators with a state dropped as later than the watermark, by the
            operator's name.
    """

    query: str
    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    lag: Lag
    seconds_left: float | None = None
    observed: dict[str, dict[str, Any]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Spell the batch out in one line."""
        parts = [
            f"{self.query}: batch {self.batch}",
            f"{self.rows:,} rows in {self.seconds:.1f} s",
            f"{self.rows_per_second:,.0f} rows/s",
            str(self.lag),
        ]
        if self.dropped:
            parts.append(f"{sum(self.dropped.values()):,} dropped as later than the watermark")
        if self.seconds_left is not None and self.lag.rows:
            parts.append(f"caught up in {self.seconds_left:,.0f} s")
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        queues = [
            {"topic": q.topic, "broker": q.broker, "queue": q.queue_id, "rows": rows}
            for q, rows in sorted(self.lag.queues.items())
        ]
        return {
            "query": self.query,
            "batch": self.batch,
            "rows": self.rows,
            "rows_per_second": round(self.rows_per_second, 1),
            "seconds": round(self.seconds, 3),
            "lag": self.lag.rows,
            "lag_by_queue": queues,
            "oldest_seconds": self.lag.oldest_s,
            "seconds_left": self.seconds_left,
            **({"observed": self.observed} if self.observed else {}),
            **({"dropped": self.dropped} if self.dropped else {}),
        }


def lag(query: StreamingQuery) -> Lag | None:
    """Return the lag of a query at the end of its last batch.

    Returns:
        None before the first batch, and for a query without this source.

    Example:
        >>> lag(query).rows  # doctest: +SKIP
        1200
    """
    progress = query.lastProgress
    if progress is None:
        return None
    return _lag(_as_dict(progress), time.time())


def figures_of(
    progress: object, before: BatchFigures | None = None, *, now: float | None = None
) -> BatchFigures | None:
    """Read one progress of a query.

    Args:
        progress: a `StreamingQueryProgress`, or its JSON as a dictionary.
        before: the figures of the previous batch, for the rate.
        now: seconds since 1970; None for now.

    Returns:
        None for a query without this source.
    """
    given = _as_dict(progress)
    found = _lag(given, time.time() if now is None else now)
    if found is None:
        return None
    rows = sum(int(source.get("numInputRows") or 0) for source in given["sources"])
    seconds = int((given.get("durationMs") or {}).get("triggerExecution") or 0) / 1000
    return BatchFigures(
        query=given.get("name") or str(given["id"]),
        batch=int(given["batchId"]),
        rows=rows,
        rows_per_second=rows / seconds if seconds else 0.0,
        seconds=seconds,
        lag=found,
        seconds_left=_seconds_left(found, rows, seconds, before),
        observed=dict(given.get("observedMetrics") or {}),
        dropped=_dropped(given.get("stateOperators") or []),
    )


def _dropped(operators: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    dropped: dict[str, int] = {}
    for operator in operators:
        rows = int(operator.get("numRowsDroppedByWatermark") or 0)
        if rows:
            name = str(operator.get("operatorName"))
            dropped[name] = dropped.get(name, 0) + rows
    return dropped


def _seconds_left(
    found: Lag, rows: int, seconds: float, before: BatchFigures | None
) -> float | None:
    if not found.rows:
        return None
    drained = None if before is None or before.lag.rows is None else before.lag.rows - found.rows
    if drained is None:
        drained = rows
    return found.rows * seconds / drained if drained > 0 and seconds else None


def _as_dict(progress: object) -> dict[str, Any]:
    text = getattr(progress, "json", None)
    if isinstance(text, str):
        found: dict[str, Any] = json.loads(text)
        return found
    assert isinstance(progress, dict)
    return progress


def _lag(progress: Mapping[str, Any], now: float) -> Lag | None:
    ours = [
        (end, _position(source.get("latestOffset")))
        for source in progress["sources"]
        if (end := _position(source.get("endOffset"))) is not None
    ]
    if not ours:
        return None
    if any(latest is None for _, latest in ours):
        return Lag(rows=None)
    queues: dict[Queue, int] = {}
    oldest: list[int] = []
    for end, latest in ours:
        assert latest is not None
        for queue, highest in latest.offsets.items():
            rows = highest - end.offsets.get(queue, highest)
            if rows > 0:
                queues[queue] = queues.get(queue, 0) + rows
                if queue in end.marks:
                    oldest.append(end.marks[queue].stored_ms)
    age = max(0.0, round(now - min(oldest) / 1000, 3)) if oldest else None
    return Lag(rows=sum(queues.values()), queues=queues, oldest_s=age)


def _position(written: object) -> Position | None:
    """Read offsets of ours; None for another source's."""
    try:
        given = json.loads(written) if isinstance(written, str) else written
    except ValueError:
        return None
    if not isinstance(given, dict) or "@v" not in given:
        return None
    try:
        return parse_version(given)
    except OffsetError:
        return None
