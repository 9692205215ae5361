"""Conditions of a query that choose what is read."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import datasource as spark_filters

from pyrmq._tables.batch import planned
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.narrowing import LARGEST, Narrowing
from pyrmq._tables.planning.plan import rows
from pyrmq.spark.pushdown import narrowing_of
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pyrmq._tables.schema import Layout

TIME = dt.datetime(2026, 11, 23, 12, 0, 0, 500, tzinfo=dt.UTC)
TIME_MS = int(TIME.timestamp() * 1000)


def narrowed(*conditions: tuple[str, str, object], layout: Layout = "rocketmq") -> Narrowing:
    made = [getattr(spark_filters, kind)((name,), value) for kind, name, value in conditions]
    return narrowing_of(made, layout)


def test_bounds_are_whole_numbers_that_lose_no_row() -> None:
    found = narrowed(("GreaterThan", "queueoffset", 4), ("LessThanOrEqual", "queueOffset", 9))
    assert found.offsets == (5, 10)
    # Half a millisecond behind TIME_MS: a message of TIME_MS is too old, one of the next is not.
    assert narrowed(("GreaterThan", "storeTimestamp", TIME)).times_ms == (TIME_MS + 1, LARGEST)
    assert narrowed(("GreaterThanOrEqual", "storeTimestamp", TIME)).times_ms[0] == TIME_MS + 1
    assert narrowed(("LessThan", "storeTimestamp", TIME)).times_ms == (0, TIME_MS + 1)
    assert narrowed(("LessThanOrEqual", "storeTimestamp", TIME)).times_ms == (0, TIME_MS + 1)
    whole = TIME.replace(microsecond=0)
    assert narrowed(("LessThan", "storeTimestamp", whole)).times_ms == (0, TIME_MS)
    assert narrowed(("EqualTo", "storeTimestamp", whole)).times_ms == (TIME_MS, TIME_MS + 1)
    assert narrowed(("EqualTo", "timestamp", whole), layout="kafka").times_ms[0] == TIME_MS


def test_values_are_those_that_all_conditions_want() -> None:
    found = narrowed(("In", "tags", ("a", "b")), ("EqualTo", "tags", "b"), ("EqualTo", "body", b""))
    assert found.tags() == "b"
    assert narrowed(("EqualTo", "tags", "a || b")).tags() is None
    assert narrowed(("EqualTo", "properties", "x")).values == {}


@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
def test_a_condition_reads_less_and_gives_the_same(
    spark: SparkSession, new_topic: Callable[..., Topic]
) -> None:
    topic = new_topic(2)
    for queue_id in (0, 1):
        topic.send(queue_id, [Sent(f"{n}".encode(), tags="ab"[n % 2]) for n in range(10)])
    condition = "queueId = 1 AND queueOffset >= 6 AND tags = 'a'"
    expected = sorted(row.queueOffset for row in topic.read(spark).where(condition).collect())
    assert expected == [6, 8]
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = topic.read(spark, filterPushdown="true").where(condition)
        assert sorted(row.queueOffset for row in frame.collect()) == expected
    finally:
        spark.conf.unset(setting)
    options = Options.parse(topic.options({}), batch=True)
    wanted = narrowed(("EqualTo", "queueId", 1), ("GreaterThanOrEqual", "queueOffset", 6))
    tasks, _ = planned(options, wanted)
    assert rows(part for task in tasks for part in task) == 4
