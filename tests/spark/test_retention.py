"""Retention that overtakes a running query, on a live broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyrmq import Admin, Producer, PullConsumer
from pyrmq._core import Connections
from pyrmq.codes import RequestCode
from pyrmq.remoting import Command
from pyrmq.testing import cluster
from tests.spark.conftest import LIMITS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]
TOPIC = "Expires"
SEGMENT = 64 * 1024
LIMIT = 10
FIRST = LIMIT if LIMITS else 2 * LIMIT
"""Rows of the first batch: Spark 4.1 does not limit it."""


def expire(running: Cluster) -> int:
    """Send until segments are full, have them deleted, and return the queue's first offset."""
    connections = Connections()
    command = Command(int(RequestCode.DELETE_EXPIRED_COMMITLOG), {})
    deadline = time.monotonic() + 30
    try:
        with (
            Producer(name_server=running.name_server) as producer,
            PullConsumer(name_server=running.name_server, group="looks") as consumer,
        ):
            (queue,) = consumer.queues(TOPIC)
            while (lowest := consumer.bounds(queue)[0]) <= 2 * LIMIT:
                assert time.monotonic() < deadline, "nothing expires"
                producer.send_batch(TOPIC, [bytes(1000)] * 40)
                connections.request(running.broker.address, command, 5000)
            return lowest
    finally:
        connections.close()


@pytest.mark.parametrize("fail", ["true", pytest.param("false", marks=pytest.mark.nightly)])
def test_what_expires_under_a_running_query_is_an_error_or_left_out(
    spark: SparkSession, tmp_path: Path, fail: str
) -> None:
    seen: list[int] = []
    began, go_on = threading.Event(), threading.Event()

    def process(frame: DataFrame, batch: int) -> None:
        del batch
        seen.extend(row.queueOffset for row in frame.collect())
        began.set()
        assert go_on.wait(60)

    with cluster(
        store=tmp_path / "log",
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=2000,
        file_reserved_time=0,
    ) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(TOPIC, queues=1)
        with Producer(name_server=running.name_server) as producer:
            producer.send_batch(TOPIC, [bytes(1000)] * 2 * LIMIT)
        query = (
            spark.readStream.format("rocketmq")
            .option("nameServer", running.name_server)
            .option("startingOffsets", "earliest")
            .option("columns", "queueOffset")
            .option("maxOffsetsPerTrigger", LIMIT)
            .option("failOnDataLoss", fail)
            .load(TOPIC)
            .writeStream.foreachBatch(process)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            assert began.wait(60), query.exception()
            lowest = expire(running)
            go_on.set()
            if fail == "true":
                gone = f"expected offsets {FIRST} to {FIRST + LIMIT}.*{lowest}|was at|are gone"
                with pytest.raises(Exception, match=gone):
                    query.awaitTermination(60)
                assert sorted(seen) == list(range(FIRST))
                return
            deadline = time.monotonic() + 60
            while max(seen) < lowest + LIMIT:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, seen
                time.sleep(0.1)
            later = [offset for offset in seen if offset >= FIRST]
            assert later == list(range(later[0], later[0] + len(later)))
            assert later[0] >= lowest
        finally:
            go_on.set()
            query.stop()
