"""Functions for steps of pipelines: ``python = "pyrmq.pipeline.steps:deduplicate"``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

__all__ = ["deduplicate", "mirror", "replay", "trace"]

_ROW = "__row"


def deduplicate(
    frame: DataFrame,
    keys: Sequence[str] = ("msgId",),
    within: str = "1 hour",
    time: str = "storeTimestamp",
) -> DataFrame:
    """Keep the first row of each key. Rows whose keys are all NULL pass: they have no key.

    A stream forgets a key `within` after its row, and drops rows that are older than the newest one
    by more than that, whether they are duplicates or not. Queues of a backlog may be that far
    apart. A pipeline fails at its end if this happened.

    Args:
        frame: rows.
        keys: columns that identify a row.
        within: how long a stream remembers keys, as Spark writes intervals.
        time: column of the time that `within` counts.

    Raises:
        ConfigError: a column is missing.

    Example:
        >>> deduplicate(orders, keys=["id"], within="10 minutes")  # doctest: +SKIP
    """
    missing = [name for name in (*keys, time) if name not in frame.columns]
    if missing:
        raise ConfigError(f"columns {', '.join(missing)} are missing: there are {frame.columns}")
    # A unique name distinguishes a row without keys from all others.
    without_keys = " AND ".join(f"`{name}` IS NULL" for name in keys)
    named = frame.selectExpr("*", f"CASE WHEN {without_keys} THEN uuid() END AS {_ROW}")
    distinct = [*keys, _ROW]
    if not frame.isStreaming:
        return named.dropDuplicates(distinct).drop(_ROW)
    return named.withWatermark(time, within).dropDuplicatesWithinWatermark(distinct).drop(_ROW)


def mirror(frame: DataFrame) -> DataFrame:
    """Copy messages: the rows of a queue go to one queue and keep their order.

    RocketMQ's internal properties are set again. The queue's name replaces a sharding key.

    Example:
        >>> mirror(messages).columns  # doctest: +SKIP
        ['body', 'tags', 'keys', 'properties', 'shardingKey']
    """
    return frame.selectExpr(
        "body",
        "tags",
        "split(keys, ' ') AS keys",
        f"{_own_properties()} AS properties",
        "concat_ws(':', topic, brokerName, queueId) AS shardingKey",
    )


def replay(frame: DataFrame) -> DataFrame:
    """Make dead letters messages of the topic that they came from, without their retry marks.

    Example:
        >>> replay(dead_letters).columns  # doctest: +SKIP
        ['topic', 'body', 'tags', 'keys', 'properties']
    """
    return frame.selectExpr(
        "coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC']) AS topic",
        "body",
        "tags",
        "split(keys, ' ') AS keys",
        f"{_own_properties()} AS properties",
    )


def _own_properties() -> str:
    from pyrmq._core import RESERVED_PROPERTIES

    names = ", ".join(f"'{name}'" for name in sorted(RESERVED_PROPERTIES))
    return f"map_filter(properties, (name, value) -> name NOT IN ({names}))"


def trace(frame: DataFrame) -> DataFrame:
    """Read messages of a trace topic: one row for each send, delivery and result.

    Columns: kind (Pub, SubBefore, SubAfter, EndTransaction, Recall), at, group, topic, msgId,
    requestId, tags, keys, storeHost, bodyBytes, costMs, ok, retries (Apache `TraceDataEncoder`).

    Example:
        >>> trace(traces).groupBy("topic").avg("costMs")  # doctest: +SKIP
    """
    records = frame.selectExpr(
        "brokerName", "explode(split(cast(body AS string), '\\u0002')) AS record"
    ).where("record <> ''")
    fields = records.selectExpr("brokerName", "split(record, '\\u0001') AS f")
    pub, before, after = "f[0] = 'Pub'", "f[0] = 'SubBefore'", "f[0] = 'SubAfter'"

    def one_of(**choices: str) -> str:
        conditions = {"pub": pub, "before": before, "after": after}
        cases = " ".join(f"WHEN {conditions[kind]} THEN {text}" for kind, text in choices.items())
        return f"CASE {cases} END"

    def at(number: int) -> str:
        return f"try_element_at(f, {number + 1})"

    time = f"coalesce({one_of(after=at(7))}, {one_of(pub=at(1), before=at(1))})"
    return fields.selectExpr(
        "f[0] AS kind",
        f"timestamp_millis(try_cast({time} AS bigint)) AS at",
        "brokerName",
        f"{one_of(pub=at(3), before=at(3), after=at(8))} AS group",
        f"{one_of(pub=at(4))} AS topic",
        f"{one_of(pub=at(5), before=at(5), after=at(2))} AS msgId",
        f"{one_of(before=at(4), after=at(1))} AS requestId",
        f"{one_of(pub=at(6))} AS tags",
        f"{one_of(pub=at(7), before=at(7), after=at(5))} AS keys",
        f"{one_of(pub=at(8))} AS storeHost",
        f"try_cast({one_of(pub=at(9))} AS int) AS bodyBytes",
        f"try_cast({one_of(pub=at(10), after=at(3))} AS bigint) AS costMs",
        f"try_cast({one_of(pub=at(13), after=at(4))} AS boolean) AS ok",
        f"try_cast({one_of(before=at(6))} AS int) AS retries",
    )
