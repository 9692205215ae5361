"""Runs that find other messages, fewer or a broker less than before: nothing is read twice.

Spark 4.1 asks for the end of a batch without saying where a query stands, so its runs take other
ways through the planning: `make spark-versions` runs these tests on it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyrmq import Admin
from pyrmq.testing import cluster
from tests.spark.conftest import LIMITS
from tests.spark.test_stream import recreated
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),
]


class Query:
    """A query that is run again and again on its checkpoint; its rows land in `rows`."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path, fail: str) -> None:
        self.spark, self.topic, self.folder, self.fail = spark, topic, folder, fail
        self.rows: list[str] = []

    def run(self) -> list[str]:
        """Take what is there and end; return what came."""
        came: list[str] = []

        def process(frame: DataFrame, batch: int) -> None:
            del batch
            came.extend(sorted(bytes(row.body).decode() for row in frame.collect()))

        options = {"startingOffsets": "earliest", "failOnDataLoss": self.fail, "timeoutMs": 1500}
        query = (
            self.topic.stream(self.spark, columns="body", **options)
            .load()
            .writeStream.foreachBatch(process)
            .option("checkpointLocation", str(self.folder))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(90)
        finally:
            self.rows += came
        return came


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("length", [2, 3, 5])
def test_a_topic_made_anew_is_loss_whatever_its_length(
    spark: SparkSession, topic: Topic, tmp_path: Path, length: int, fail: str
) -> None:
    query = Query(spark, topic, tmp_path, fail)
    topic.send(0, ["a", "b", "c"])
    assert query.run() == ["a", "b", "c"]
    recreated(topic)
    new = [f"new {number}" for number in range(length)]
    topic.send(0, new)
    if fail == "true":
        with pytest.raises(Exception, match=r"queue 0: was at 3(, now has 0 to 2| after the mess)"):
            query.run()
        assert query.rows == ["a", "b", "c"]
        return
    assert query.run() == new
    topic.send(0, ["later"])
    assert query.run() == ["later"]


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("given_anew", [2, 6])
def test_a_broker_that_lost_its_last_messages_makes_no_row_come_twice(
    spark: SparkSession, tmp_path: Path, given_anew: int, fail: str
) -> None:
    """Its store is that of a moment before; it gives the offsets of what it lost anew."""
    store, older = tmp_path / "store", tmp_path / "older"
    with cluster(store=store) as running:
        topic = Topic("Cut", running.name_server, running.broker.address).create(1)
        query = Query(spark, topic, tmp_path / "checkpoint", fail)
        kept = [f"kept {number}" for number in range(5)]
        topic.send(0, kept)
        running.stop_broker()
        shutil.copytree(store, older)
        running.start_broker()
        lost = [f"lost {number}" for number in range(4)]
        topic.send(0, lost)
        assert query.run() == [*kept, *lost]
        running.stop_broker()
        shutil.rmtree(store)
        shutil.move(older, store)
        running.start_broker()
        new = [f"new {number}" for number in range(given_anew)]
        topic.send(0, new)
        if fail == "true":
            shorter = r", now has 0 to 7| after the message"
            with pytest.raises(Exception, match=f"queue 0: was at 9({shorter})"):
                query.run()
            assert query.rows == [*kept, *lost]
            return
        assert query.run() == new
        topic.send(0, ["later"])
        assert query.run() == ["later"]
        topic.connections.close()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_run_without_a_broker_makes_no_row_come_twice(
    spark: SparkSession, tmp_path: Path, fail: str
) -> None:
    with cluster(brokers=2) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("Two", queues=1)
        one, other = (
            Topic("Two", running.name_server, broker.address) for broker in running.brokers
        )
        query = Query(spark, one, tmp_path, fail)
        one.send(0, ["a", "b"])
        other.send(0, ["c", "d"])
        assert sorted(query.run()) == ["a", "b", "c", "d"]
        running.brokers[1].stop()
        one.send(0, ["e"])
        if LIMITS:
            assert query.run() == ["e"]
        else:
            for _ in range(2):
                with pytest.raises(Exception, match="delete the newest file of the checkpoint"):
                    query.run()
        running.brokers[1].start()
        other.send(0, ["f"])
        if not LIMITS:
            newest = max((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
            assert not (tmp_path / "commits" / newest.name).exists()
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        query.run()
        query.run()
        assert sorted(query.rows) == ["a", "b", "c", "d", "e", "f"]
        for topic in (one, other):
            topic.connections.close()
