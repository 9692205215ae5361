"""Lag and lines of a query's progress, and the listener of a real one."""

from __future__ import annotations

import io
import json
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyrmq.pipeline
import pyrmq.spark
from pyrmq._tables.offsets import Mark, Position, Queue, to_json
from pyrmq.spark.progress.figures import Lag, figures_of, lag
from pyrmq.spark.progress.listener import listen

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.topic import Topic

A, B = Queue("orders", "broker-a", 0), Queue("orders", "broker-b", 1)


def progress(end: Position, latest: Position | None, **more: object) -> dict[str, Any]:
    source = {
        "endOffset": to_json(end),
        "latestOffset": None if latest is None else json.dumps(to_json(latest)),
        "numInputRows": 500,
    }
    return {
        "id": "x-1",
        "name": "orders",
        "batchId": 7,
        "sources": [source],
        "durationMs": {"triggerExecution": 2000},
        **more,
    }


def test_a_line_says_what_a_batch_did_and_what_waits() -> None:
    end = Position({A: 500, B: 20}, marks={A: Mark(1, 90_000), B: Mark(2, 99_000)})
    found = figures_of(progress(end, Position({A: 1500, B: 20})), now=100.0)
    assert found is not None
    assert found.lag == Lag(rows=1000, queues={A: 1000}, oldest_s=10.0)
    assert str(found) == (
        "orders: batch 7, 500 rows in 2.0 s, 250 rows/s, lag 1,000, oldest waits at most 10.0 s"
        " (orders/broker-a/0: 1,000), caught up in 4 s"
    )
    assert json.loads(json.dumps(found.as_json()))["lag_by_queue"] == [
        {"topic": "orders", "broker": "broker-a", "queue": 0, "rows": 1000}
    ]
    slower = figures_of(progress(end, Position({A: 1400, B: 20})), found, now=101.0)
    assert slower is not None
    assert slower.seconds_left == pytest.approx(900 * 2.0 / 100)
    growing = figures_of(progress(end, Position({A: 1600, B: 20})), found, now=101.0)
    assert growing is not None
    assert growing.seconds_left is None


def test_the_package_has_functions_where_modules_have_other_names() -> None:
    for package in (pyrmq.spark, pyrmq.pipeline):
        for name in package.__all__:
            assert callable(getattr(package, name)), name


def test_without_ends_the_lag_is_unknown_and_other_sources_are_left_out() -> None:
    found = figures_of(progress(Position({A: 1}), None))
    assert found is not None
    assert (found.lag.rows, str(found.lag)) == (None, "lag unknown")
    other = progress(Position({A: 1}), None)
    other["sources"] = [{"endOffset": '{"orders": {"0": 3}}', "numInputRows": 1}]
    assert figures_of(other) is None
    other["sources"] = [{"endOffset": 12}, {"endOffset": None}]
    assert figures_of(other) is None


@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
def test_a_listener_shows_the_batches_of_a_query(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send(0, [f"{number}" for number in range(30)])
    lines = io.StringIO()
    listener = listen(spark, lines, as_json=True, metrics_port=0)
    try:
        query = (
            topic.stream(spark, startingOffsets="earliest", maxOffsetsPerTrigger=20)
            .load()
            .writeStream.format("noop")
            .queryName("shown")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        behind = lag(query)
        assert behind is not None
        assert behind.rows in {0, None}
        deadline = time.monotonic() + 30
        while sum(json.loads(line)["rows"] for line in lines.getvalue().splitlines()) < 30:
            assert time.monotonic() < deadline, lines.getvalue()
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://{listener.metrics_address}/metrics") as answer:
            metrics = answer.read().decode()
        assert 'pyrmq_spark_rows_total{query="shown"} 30.0' in metrics
    finally:
        listener.close()
