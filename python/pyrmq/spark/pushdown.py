"""Conditions of a query that choose what is read (option ``filterPushdown=true``).

They only narrow the read: Spark evaluates every condition itself, too. So one that is not
understood here costs time, never rows.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyrmq._tables.planning.narrowing import LARGEST, Narrowing
from pyrmq._tables.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql.datasource import Filter

    from pyrmq._tables.schema import Layout

__all__ = ["narrowing_of"]

_CHOICES = ("topic", "brokerName", "queueId", "tags")
_BY_LOWER = {name.lower(): name for name in COLUMNS}
_OF_KAFKA = {
    "topic": "topic",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "brokername": "brokerName",
}


def narrowing_of(filters: Iterable[Filter], layout: Layout) -> Narrowing:
    """Read the conditions that all have to hold; unknown ones narrow nothing."""
    found = Narrowing()
    names = _OF_KAFKA if layout == "kafka" else _BY_LOWER
    for condition in filters:
        attribute: tuple[str, ...] = getattr(condition, "attribute", ())
        name = names.get(attribute[0].lower()) if len(attribute) == 1 else None
        found = _with(found, name, condition)
    return found


def _with(found: Narrowing, name: str | None, condition: Filter) -> Narrowing:
    if name in _CHOICES and isinstance(condition, EqualTo | In):
        given = condition.value
        values = frozenset(given if isinstance(condition, In) else (given,))
        both = values & found.values.get(name, values)
        return replace(found, values={**found.values, name: both})
    if name == "queueOffset":
        bounds = _bounds(condition, lambda value: (value, value))
        return found if bounds is None else replace(found, offsets=_both(found.offsets, bounds))
    if name == "storeTimestamp":
        bounds = _bounds(condition, _milliseconds)
        return found if bounds is None else replace(found, times_ms=_both(found.times_ms, bounds))
    return found


def _bounds(condition: Filter, whole: Callable[[Any], tuple[int, int]]) -> tuple[int, int] | None:
    """Return the whole numbers that a condition lets pass: from, up to but not including."""
    value = getattr(condition, "value", None)
    if value is None or isinstance(value, bool):
        return None
    floor, ceiling = whole(value)
    if isinstance(condition, EqualTo):
        return ceiling, floor + 1
    if isinstance(condition, GreaterThan):
        return floor + 1, LARGEST
    if isinstance(condition, GreaterThanOrEqual):
        return ceiling, LARGEST
    if isinstance(condition, LessThan):
        return 0, ceiling
    if isinstance(condition, LessThanOrEqual):
        return 0, floor + 1
    return None


def _milliseconds(value: datetime) -> tuple[int, int]:
    """Return a time in milliseconds, rounded down and up. Without a zone it is in the local one."""
    since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return micros // 1000, -(-micros // 1000)


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])
