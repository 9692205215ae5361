"""Streams: checkpoints, the recorded start, limits, new queues, lost messages."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import checks
from tests.spark.conftest import LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.topic import Topic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def run(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> Iterator[Callable[..., StreamingQuery]]:
    """Start queries on the test's topic and checkpoint; the batches land in ``run.batches``."""
    started: list[StreamingQuery] = []

    def start(
        on_batch: Callable[[list[str], int], None], *, now: bool = False, **options: object
    ) -> StreamingQuery:
        def process(frame: DataFrame, batch: int) -> None:
            on_batch(sorted(row[0] for row in frame.collect()), batch)

        writer = (
            topic.stream(spark, **options)
            .load()
            .selectExpr("cast(body as string)")
            .writeStream.foreachBatch(process)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        query = (writer.trigger(availableNow=True) if now else writer).start()
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


class Batches:
    """The rows of a query's batches."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, list[str]]] = []
        self.changed = threading.Condition()

    def __call__(self, rows: list[str], batch: int) -> None:
        """Record one batch."""
        with self.changed:
            self.rows.append((batch, rows))
            self.changed.notify_all()

    @property
    def texts(self) -> list[str]:
        """Return all rows of all batches, sorted."""
        return sorted(text for _, rows in self.rows for text in rows)

    def await_texts(self, expected: list[str]) -> None:
        """Wait for exactly these rows."""
        with self.changed:
            done = self.changed.wait_for(lambda: len(self.texts) >= len(expected), timeout=40)
        assert done, f"only {self.texts}"
        assert self.texts == sorted(expected)


def ended(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(60)
    return query


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    checks.a_stream_goes_on_from_its_checkpoint(spark, topic, tmp_path)


def test_a_running_stream_sees_what_comes(topic: Topic, run: Callable[..., StreamingQuery]) -> None:
    batches = Batches()
    topic.send(0, ["old"])
    query = run(batches)
    deadline = time.monotonic() + 40
    while not batches.rows:
        assert time.monotonic() < deadline, query.exception()
        time.sleep(0.02)
    topic.send(1, ["a", "b"])
    batches.await_texts(["a", "b"])
    topic.send(2, ["c"])
    batches.await_texts(["a", "b", "c"])
    progress = query.lastProgress
    assert progress is not None
    source = progress.sources[0]
    if LIMITS:
        assert json.loads(source.latestOffset)["@v"] == 2
    assert source.description


@pytest.mark.nightly
def test_a_first_batch_that_failed_is_read_again_although_latest_has_moved(
    topic: Topic, run: Callable[..., StreamingQuery]
) -> None:
    topic.send(0, ["before"])

    def fail(rows: list[str], batch: int) -> None:
        raise RuntimeError(f"batch {batch} with {rows} fails on purpose")

    query = run(fail, now=True, startingOffsets="latest")
    with pytest.raises(Exception, match="fails on purpose"):
        query.awaitTermination(60)
    topic.send(0, ["missed before"])
    batches = Batches()
    ended(run(batches, now=True, startingOffsets="latest"))
    if not LIMITS:
        # Spark 4.1 runs one batch for a Python source, and that one failed.
        ended(run(batches, now=True, startingOffsets="latest"))
    assert batches.texts == ["missed before"]


@pytest.mark.skipif(not LIMITS, reason="Spark 4.1 does not limit batches of Python sources")
def test_available_now_takes_the_topic_in_batches_of_the_limit(
    topic: Topic, run: Callable[..., StreamingQuery]
) -> None:
    sent = [f"{number:03}" for number in range(90)]
    topic.send(0, sent[:80])
    topic.send(1, sent[80:])
    batches = Batches()
    ended(run(batches, now=True, startingOffsets="earliest", maxOffsetsPerTrigger=40))
    assert batches.texts == sent
    sizes = [len(rows) for _, rows in batches.rows]
    assert max(sizes) <= 42
    assert len([size for size in sizes if size]) == 3


def test_a_query_can_be_told_to_take_all_at_once(
    topic: Topic, run: Callable[..., StreamingQuery]
) -> None:
    topic.send(0, [f"{number}" for number in range(30)])
    batches = Batches()
    ended(run(batches, now=True, startingOffsets="earliest", maxOffsetsPerTrigger=0))
    assert [len(rows) for _, rows in batches.rows if rows] == [30]


def test_a_queue_that_comes_later_is_read_from_its_earliest(
    topic: Topic, run: Callable[..., StreamingQuery]
) -> None:
    topic.send(0, ["a"])
    batches = Batches()
    ended(run(batches, now=True, startingOffsets="earliest"))
    topic.create(6)
    topic.send(5, ["b", "c"])
    ended(run(batches, now=True, startingOffsets="latest"))
    assert batches.texts == ["a", "b", "c"]


def test_specific_offsets_start_a_stream(topic: Topic, run: Callable[..., StreamingQuery]) -> None:
    topic.send(0, ["a", "b", "c"])
    broker = topic.broker_name()
    place = f'{{"{topic.name}":{{"{broker}":{{"0":1,"1":-2,"2":-1,"3":0}}}}}}'
    batches = Batches()
    ended(run(batches, now=True, startingOffsets=place))
    assert batches.texts == ["b", "c"]


def test_a_stream_commits_to_its_group(topic: Topic, run: Callable[..., StreamingQuery]) -> None:
    topic.send(0, ["a", "b", "c"])
    batches = Batches()
    options = {"group": f"Group{topic.name}", "commitToGroup": "true"}
    query = run(batches, startingOffsets="earliest", **options)
    batches.await_texts(["a", "b", "c"])
    # Spark commits a batch when it plans the next one.
    topic.send(1, ["d"])
    batches.await_texts(["a", "b", "c", "d"])
    deadline = time.monotonic() + 40
    fields: dict[str, str | int | bool | None] = {
        "consumerGroup": options["group"],
        "topic": topic.name,
        "queueId": 0,
    }
    while int(topic.ask(14, fields).fields["offset"]) < 3:
        assert time.monotonic() < deadline, query.exception()
        time.sleep(0.05)


def recreated(topic: Topic) -> None:
    topic.delete()
    deadline = time.monotonic() + 20
    while True:
        topic.create()
        if int(topic.ask(30, {"topic": topic.name, "queueId": 0}).fields["offset"]) == 0:
            return
        assert time.monotonic() < deadline, "the deleted topic kept its messages"
        time.sleep(0.1)


@pytest.mark.parametrize("fail", ["true", pytest.param("false", marks=pytest.mark.nightly)])
def test_a_topic_made_anew_is_data_loss(
    topic: Topic, run: Callable[..., StreamingQuery], fail: str
) -> None:
    options: dict[str, Any] = {
        "startingOffsets": "earliest",
        "failOnDataLoss": fail,
        "timeoutMs": 1000,
    }
    topic.send(0, ["a", "b", "c"])
    batches = Batches()
    ended(run(batches, now=True, **options))
    recreated(topic)
    topic.send(0, ["new"])
    query = run(batches, **options)
    if fail == "true":
        with pytest.raises(Exception, match=r"queue 0: was at 3, now has 0 to 1"):
            query.awaitTermination(60)
    else:
        batches.await_texts(["a", "b", "c", "new"])


@pytest.mark.nightly
def test_a_checkpoint_of_another_form_is_refused(
    topic: Topic, run: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    topic.send(0, ["a"])
    ended(run(Batches(), now=True, startingOffsets="earliest"))
    log = tmp_path / "checkpoint" / "offsets" / "0"
    log.write_text(log.read_text().replace('"@v": 2', '"@v": 7'))
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink(missing_ok=True)
    with pytest.raises(Exception, match="checkpoint offsets have version 7"):
        run(Batches(), now=True, startingOffsets="earliest").awaitTermination(60)
