"""Frames and streams written to topics: at least once, exactly once, and what is refused."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.conftest import Site
    from tests.spark.topic import Topic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),
]
NUMBERS = itertools.count(1)


def bodies(spark: SparkSession, topic: Topic) -> list[str]:
    """Return the texts in a topic, sorted."""
    rows = topic.read(spark, columns="body").collect()
    return sorted(bytes(row.body).decode() for row in rows)


def write(frame: DataFrame, topic: Topic, **options: str) -> None:
    frame.write.format("rocketmq").mode("append").options(
        nameServer=topic.name_server, topic=topic.name, **options
    ).save()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_frame_becomes_messages(spark: SparkSession, topic: Topic, delivery: str) -> None:
    frame = spark.range(2000).selectExpr(
        "cast(id as string) as body",
        "concat('t', id % 3) as tags",
        "array('k', cast(id as string)) as keys",
        "map('n', cast(id as string)) as properties",
    )
    write(frame, topic, delivery=delivery)
    rows = topic.read(spark).collect()
    assert len(rows) == 2000
    for row in rows:
        text = bytes(row.body).decode()
        assert (row.tags, row.keys, row.properties["n"]) == (
            f"t{int(text) % 3}",
            f"k {text}",
            text,
        )
    assert len({bytes(row.body) for row in rows}) == 2000


def test_a_read_can_be_written_to_another_topic(
    spark: SparkSession, new_topic: Callable[..., Topic]
) -> None:
    """The option says where to, although the rows have the topic that they came from."""
    source, target = new_topic(), new_topic()
    source.send(0, ["a", "b"])
    write(source.read(spark).select("topic", "body", "keys", "tags"), target)
    assert bodies(spark, target) == ["a", "b"]


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["'x' as bdy"], {}, "column bdy: unknown, did you mean body"),
        (["1 as body"], {}, "column body: has type int, expected string or binary"),
        (["'x' as body"], {"topik": "t"}, "option topik: unknown, did you mean topic"),
        (["'x' as body"], {"topic": ""}, "option topic: is missing"),
        (["'x' as body"], {"delivery": "maybe"}, "expected at-least-once or exactly-once"),
    ],
)
def test_what_cannot_be_written_fails_at_planning(
    spark: SparkSession, site: Site, columns: list[str], options: dict[str, str], text: str
) -> None:
    frame = spark.range(1).selectExpr(*columns)
    given = {"nameServer": site.name_server, "topic": "Refused", **options}
    with pytest.raises(Exception, match=text):
        frame.write.format("rocketmq").mode("append").options(**given).save()


def test_a_topic_that_takes_no_messages_fails_the_write(spark: SparkSession, topic: Topic) -> None:
    with Admin(name_server=topic.name_server) as admin:
        admin.create_topic(topic.name, queues=4, perm=4)
    with pytest.raises(Exception, match=rf"topic `?{topic.name}"):
        write(spark.range(1).selectExpr("'x' as body"), topic)
    assert bodies(spark, topic) == []


def test_a_topic_cannot_be_overwritten(spark: SparkSession, topic: Topic) -> None:
    frame = spark.range(1).selectExpr("'x' as body")
    with pytest.raises(Exception, match="a topic cannot be overwritten: use mode append"):
        frame.write.format("rocketmq").mode("overwrite").options(
            nameServer=topic.name_server, topic=topic.name
        ).save()


def test_bad_rows_fail_the_write_or_go_to_their_own_topic(
    spark: SparkSession, new_topic: Callable[..., Topic]
) -> None:
    topic, apart = new_topic(), new_topic()
    frame = spark.sql("select stack(3, 'a', null, 'b') as body")
    with pytest.raises(Exception, match=r'row \{"body": null\}: the body is NULL. Option onBadRow'):
        write(frame.filter("body is null"), topic)
    write(frame, topic, onBadRow=apart.name)
    assert bodies(spark, topic) == ["a", "b"]
    (row,) = apart.read(spark).collect()
    assert json.loads(bytes(row.body)) == {"body": None}
    assert row.properties["pyrmq_reason"] == "the body is NULL"
    assert row.properties["pyrmq_topic"] == topic.name
    large = "concat('ok', repeat('L', if(id = 1, 5242880, 0))) as body"
    frame = spark.range(2).selectExpr(large, "cast(id * 98 as int) as queueId")
    write(frame, topic, onBadRow=apart.name)
    assert bodies(spark, topic) == ["a", "b", "ok"]
    cut = apart.read(spark).where("properties['pyrmq_bytes'] > 5242880").first()
    assert cut is not None
    assert bytes(cut.body).startswith(b'{"body": "okLLL')


class Pipeline:
    """A stream from one topic to another, started again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, source: Topic, target: Topic, folder: Path) -> None:
        self.spark, self.source, self.target, self.folder = spark, source, target, folder

    def start(self, change: str = "body", **options: str) -> StreamingQuery:
        """Take what is there, with a column expression as the body."""
        return (
            self.source.stream(self.spark, startingOffsets="earliest", maxOffsetsPerTrigger=40)
            .load()
            .selectExpr(f"{change} as body")
            .writeStream.format("rocketmq")
            .options(nameServer=self.target.name_server, topic=self.target.name, **options)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, **options: str) -> None:
        """Take what is there and end."""
        query = self.start(**options)
        assert query.awaitTermination(120)


@pytest.fixture
def pipeline(spark: SparkSession, new_topic: Callable[..., Topic], tmp_path: Path) -> Pipeline:
    """Two new topics and a checkpoint."""
    return Pipeline(spark, new_topic(), new_topic(), tmp_path)


@pytest.mark.parametrize(
    "delivery", [pytest.param("at-least-once", marks=pytest.mark.nightly), "exactly-once"]
)
def test_a_stream_goes_from_topic_to_topic(
    spark: SparkSession, pipeline: Pipeline, delivery: str
) -> None:
    texts = [f"m{number}" for number in range(100)]
    pipeline.source.send(0, texts[:60])
    pipeline.run(delivery=delivery)
    pipeline.source.send(1, texts[60:])
    pipeline.run(delivery=delivery)
    pipeline.run(delivery=delivery)
    assert bodies(spark, pipeline.target) == sorted(texts)


@pytest.mark.nightly
def test_a_batch_that_failed_half_way_is_completed_exactly_once(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    # Equal rows are counted, and another sender's messages in the same topic are left alone.
    texts = [f"m{number % 20}" for number in range(60)]
    pipeline.source.send(0, [*texts[:30], "bad", *texts[30:]])
    failing = (
        "if(cast(body as string) = 'bad', cast(raise_error('a row in the middle') as binary), body)"
    )
    query = pipeline.start(failing, delivery="exactly-once")
    with pytest.raises(Exception, match="a row in the middle"):
        query.awaitTermination(120)
    pipeline.target.send(0, ["stranger"])
    begun = len(bodies(spark, pipeline.target))
    pipeline.run(delivery="exactly-once")
    assert Counter(bodies(spark, pipeline.target)) == Counter([*texts, "bad", "stranger"])
    assert begun >= 1


def test_a_batch_that_was_sent_but_not_committed_by_spark_is_not_sent_again(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    texts = [f"m{number}" for number in range(30)]
    pipeline.source.send(0, texts)
    pipeline.run(delivery="exactly-once")
    folder = pipeline.folder / "checkpoint"
    newest = max(int(path.name) for path in (folder / "commits").glob("[0-9]*"))
    fence = folder / "pyrmq-sink" / f"{newest}.fence"
    assert fence.exists()
    # As if the driver had died after the fence was written: Spark runs the batch again.
    (folder / "commits" / str(newest)).unlink()
    (folder / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    pipeline.run(delivery="exactly-once")
    assert bodies(spark, pipeline.target) == sorted(texts)
    # As if it had died before that: the topic has the rows, and no file records it.
    (folder / "commits" / str(newest)).unlink()
    (folder / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    for path in (folder / "pyrmq-sink").iterdir():
        path.unlink()
    intent = {"topic": pipeline.target.name, "ends": {"@v": 2}}
    (folder / "pyrmq-sink" / "-1.intent").write_text(json.dumps(intent))
    pipeline.run(delivery="exactly-once")
    assert bodies(spark, pipeline.target) == sorted(texts)


def test_a_fence_that_does_not_fit_is_refused(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.source.send(0, ["a"])
    pipeline.run(delivery="exactly-once")
    fence = pipeline.folder / "checkpoint" / "pyrmq-sink" / "0.fence"
    fence.write_text(json.dumps({"topic": "Other"}))
    pipeline.source.send(0, ["b"])
    with pytest.raises(Exception, match="belongs to a sink of topic Other, this one writes"):
        pipeline.run(delivery="exactly-once")
    fence.write_text(json.dumps({"topic": pipeline.target.name}))
    fence.rename(fence.with_name("99.fence"))
    with pytest.raises(Exception, match="batch 99 was sent, but the checkpoint has no such batch"):
        pipeline.run(delivery="exactly-once")


def test_a_batch_of_foreach_batch_that_is_run_again_is_written_once(
    spark: SparkSession, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(1)
    texts = [f"{number % 7}" for number in range(20)]
    source.send(0, texts)
    failures = ["fails on purpose"]
    sinks = [str(tmp_path / "sink")]

    def process(frame: DataFrame, batch: int) -> None:
        for folder in sinks:
            write(frame, target, delivery="exactly-once", checkpointLocation=folder)
        if failures:
            raise RuntimeError(failures.pop())

    def run() -> StreamingQuery:
        rows = source.stream(spark, startingOffsets="earliest").load().select("body")
        writer = rows.writeStream.foreachBatch(process)
        folder = str(tmp_path / "checkpoint")
        return writer.option("checkpointLocation", folder).trigger(availableNow=True).start()

    with pytest.raises(Exception, match="fails on purpose"):
        run().awaitTermination(60)
    assert run().awaitTermination(60)
    assert bodies(spark, target) == sorted(texts)
    source.send(0, ["more"])
    assert run().awaitTermination(60)
    assert bodies(spark, target) == sorted([*texts, "more"])
    # A checkpoint that was restored by one batch gives the next one the same number.
    for path in (tmp_path / "checkpoint").glob("*/1"):
        path.unlink()
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    source.send(0, ["other"])
    with pytest.raises(Exception, match="batch 1 was sent with 1 rows, and this one has 2"):
        run().awaitTermination(60)
    for path in (tmp_path / "sink/pyrmq-sink").iterdir():
        path.unlink()
    assert run().awaitTermination(60)
    assert bodies(spark, target) == sorted([*texts, "more", "more", "other"])
    sinks.append(sinks[0])
    source.send(0, ["twice"])
    with pytest.raises(Exception, match=r"is written twice with .* its own checkpointLocation"):
        run().awaitTermination(60)
