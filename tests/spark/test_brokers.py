"""Streams over two brokers, one of which is killed: between batches, within one, for good."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from statistics import median
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin
from pyrmq.testing import cluster
from tests.spark.test_stream import Batches
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pyrmq.testing import Cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),
]
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """Two brokers, each in its own process, behind links that can be slow."""
    with cluster(brokers=2, processes=True, faults=True, flush_disk_type="SYNC_FLUSH") as running:
        yield running


class Pair:
    """A topic of one queue on each of the two brokers."""

    def __init__(self, running: Cluster) -> None:
        self.running = running
        self.name = f"Pair{next(NUMBERS)}"
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(self.name, queues=1)

    def send(self, broker: int, texts: list[str]) -> None:
        """Send to one broker."""
        address = self.running.brokers[broker].address
        topic = Topic(self.name, self.running.name_server, address)
        topic.send(0, texts)
        topic.connections.close()


@pytest.fixture
def pair(brokers: Cluster) -> Pair:
    """The topic of a test, with both brokers there."""
    for broker in brokers.brokers:
        broker.start()
    return Pair(brokers)


@pytest.fixture
def run(spark: SparkSession, pair: Pair, tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """Start a query on the test's topic; each call of `on_batch` gets a batch's rows.

    `before` is called when a batch is planned and not read yet.
    """
    started: list[StreamingQuery] = []

    def start(
        on_batch: Callable[[list[str], int], None],
        before: Callable[[int], None] = lambda _: None,
        **options: object,
    ) -> StreamingQuery:
        def process(frame: DataFrame, batch: int) -> None:
            before(batch)
            on_batch(sorted(row[0] for row in frame.collect()), batch)

        given = {
            "nameServer": pair.running.name_server,
            "topic": pair.name,
            "startingOffsets": "earliest",
            "timeoutMs": 3000,
            **options,
        }
        query = (
            spark.readStream.format("rocketmq")
            .options(**{name: str(value) for name, value in given.items()})
            .load()
            .selectExpr("cast(body as string)")
            .writeStream.foreachBatch(process)
            .option("checkpointLocation", str(tmp_path / f"checkpoint{len(started)}"))
            .start()
        )
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


@pytest.mark.parametrize(
    ("seconds", "most_lag"),
    [
        pytest.param(8, 40, id="8 s"),
        pytest.param(300, 2, id="5 minutes", marks=[pytest.mark.nightly, pytest.mark.timeout(600)]),
    ],
)
def test_a_killed_broker_stops_neither_the_others_nor_the_query(
    pair: Pair, run: Callable[..., StreamingQuery], seconds: float, most_lag: float
) -> None:
    """The lag counts the rows of the broker that answers, in the query that has not read them."""
    both = [Batches(), Batches()]
    pair.send(0, ["a0"])
    pair.send(1, ["b0"])
    queries = [
        run(batches, failOnDataLoss=fail)
        for batches, fail in zip(both, ("true", "false"), strict=True)
    ]
    for batches in both:
        batches.await_texts(["a0", "b0"])
    pair.running.brokers[1].kill()
    expected = ["a0", "b0"]
    begun = time.monotonic()
    number = 0
    lags = []
    # Longer than timeoutMs, after which the query must still be there.
    while time.monotonic() - begun < seconds or number < 4:
        number += 1
        pair.send(0, [f"a{number}"])
        sent = time.monotonic()
        expected.append(f"a{number}")
        for batches in both:
            batches.await_texts(expected)
        lags.append(time.monotonic() - sent)
        time.sleep(0.5)
    sys.stdout.write(f"lag: median {median(lags):.2f} s, at most {max(lags):.2f} s\n")
    assert max(lags) < most_lag
    pair.running.brokers[1].start()
    pair.send(1, ["b1", "b2"])
    expected += ["b1", "b2"]
    for batches, query in zip(both, queries, strict=True):
        batches.await_texts(expected)
        assert query.isActive


@pytest.mark.nightly
def test_a_batch_waits_for_a_broker_that_was_killed_while_it_was_read(
    pair: Pair, run: Callable[..., StreamingQuery]
) -> None:
    body = "x" * 200_000
    pair.send(0, [f"a{number}" for number in range(3)])
    pair.send(1, [f"b{number}-{body}" for number in range(60)])
    batches = Batches()

    def kill_first(rows: list[str], batch: int) -> None:
        if batch == 0:
            # The next batch is planned by now or will be; its broker is gone before it is read.
            pair.running.brokers[1].kill()
        batches(rows, batch)

    query = run(kill_first, maxOffsetsPerTrigger=40, maxBatchBytes=300_000)
    deadline = time.monotonic() + 60
    while pair.running.brokers[1].running:
        assert time.monotonic() < deadline, query.exception()
        time.sleep(0.02)
    time.sleep(5)
    assert query.isActive, query.exception()
    pair.running.brokers[1].start()
    expected = [f"a{number}" for number in range(3)]
    expected += [f"b{number}-{body}" for number in range(60)]
    batches.await_texts(expected)


@pytest.mark.nightly
@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("moment", ["planned", "read"])
def test_a_batch_ends_within_two_seconds_of_its_brokers_return(
    pair: Pair, run: Callable[..., StreamingQuery], moment: str, fail: str
) -> None:
    """The broker is killed when the batch is planned, or while a task reads it."""
    texts = [f"b{number}-{'x' * 200_000}" for number in range(100)]
    pair.send(0, ["a"])
    pair.send(1, texts)
    batches, begun = Batches(), threading.Event()
    broker = pair.running.brokers[1]

    def before(batch: int) -> None:
        if batch == 0 and moment == "planned":
            broker.kill()
        elif batch == 0:
            # The read takes two and a half seconds.
            broker.network.slow(8_000_000, direction="answers")
        begun.set()

    query = run(batches, before, maxBatchBytes=300_000, failOnDataLoss=fail)
    assert begun.wait(60), query.exception()
    if moment == "read":
        time.sleep(1)
        broker.kill()
        broker.network.heal()
    time.sleep(5)
    assert query.isActive, query.exception()
    assert not batches.rows
    broker.start()
    returned = time.monotonic()
    while not batches.rows:
        assert time.monotonic() - returned < 40, query.exception()
        time.sleep(0.01)
    took = time.monotonic() - returned
    batches.await_texts(["a", *texts])
    sys.stdout.write(f"the batch ended {took:.2f} s after its broker had returned\n")
    assert took < 2


def test_a_batch_read_names_the_broker_that_it_misses(spark: SparkSession, pair: Pair) -> None:
    pair.send(0, ["a"])
    pair.send(1, ["b"])
    reader = spark.read.format("rocketmq").options(
        nameServer=pair.running.name_server, topic=pair.name, timeoutMs="2000"
    )
    pair.running.brokers[1].kill()
    with pytest.raises(Exception, match="broker broker-b"):
        reader.option("brokers", "broker-a,broker-b").load().collect()
    pair.running.brokers[1].start()
    rows = reader.option("brokers", "broker-a,broker-b").load().collect()
    assert sorted(bytes(row.body) for row in rows) == [b"a", b"b"]
