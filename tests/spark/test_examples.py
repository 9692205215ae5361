"""The examples for Spark run as written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from examples import spark_batch, spark_stream, spark_write

from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore"),
]


def test_messages_are_counted_by_tag(spark: SparkSession, topic: Topic) -> None:
    topic.send(
        0, [Sent(b"two", tags="a"), Sent(b"three", tags="b"), Sent(b"x"), Sent(b"y", tags="a")]
    )
    rows = spark_batch.by_tag(spark, topic.name_server, topic.name).collect()
    assert [tuple(row) for row in rows] == [("a", 2, 4), ("b", 1, 5), ("none", 1, 1)]


def test_a_topic_is_kept_as_parquet_from_run_to_run(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    for run in range(2):
        topic.send(run, [Sent(f"{run}-{n}".encode(), keys=f"k{n}") for n in range(5)])
        query = spark_stream.to_parquet(spark, topic.name_server, topic.name, str(tmp_path))
        assert query.awaitTermination(60)
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(row.text for row in rows) == [f"{run}-{n}" for run in range(2) for n in range(5)]
    assert {row.day for row in rows} == {row.stored.date() for row in rows}


def test_large_orders_become_alerts(
    spark: SparkSession, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    names = (source.name_server, source.name, target.name, str(tmp_path / "checkpoint"))
    for total in (5, 2000):
        source.send(0, [Sent(f'{{"customer": "c1", "total": {total}}}'.encode(), keys=f"o{total}")])
        assert spark_write.alerts(spark, *names).awaitTermination(60)
    (row,) = target.read(spark).collect()
    assert (row.keys, row.tags) == ("o2000", "large")
    assert row.properties["__SHARDINGKEY"] == "c1"
    assert bytes(row.body) == b'{"customer":"c1","total":2000.0}'
