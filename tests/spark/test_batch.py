"""Batch reads: columns, projection, offsets, tasks, refusals."""

from __future__ import annotations

import time
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import checks
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore"),
]


def texts(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.selectExpr("cast(body as string)").collect())


def numbered(topic: Topic, per_queue: int = 10, queues: int = 4) -> Topic:
    for queue_id in range(queues):
        topic.send(queue_id, [f"{queue_id}-{number}" for number in range(per_queue)])
    return topic


def test_all_columns_hold_what_a_plain_pull_shows(spark: SparkSession, topic: Topic) -> None:
    checks.all_columns_hold_what_a_plain_pull_shows(spark, topic)


def test_the_default_columns_come_in_their_order(spark: SparkSession, topic: Topic) -> None:
    assert topic.read(spark).columns == checks.ALL.split(",")[:11]


def test_a_schema_of_ones_own_is_a_projection(spark: SparkSession, topic: Topic) -> None:
    topic.send(1, [Sent(b"x", keys="k")])
    frame = topic.reader(spark).schema("Keys STRING, body BINARY, queueID INT").load()
    assert [tuple(row) for row in frame.collect()] == [("k", bytearray(b"x"), 1)]
    assert frame.columns == ["Keys", "body", "queueID"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("bdy BINARY", "column bdy: unknown, did you mean body"),
        ("body INT", "column body: has type binary or string, the schema says int"),
        ("queueId BIGINT", "column queueId: has type int, the schema says bigint"),
    ],
)
def test_a_wrong_schema_says_which_column(
    spark: SparkSession, topic: Topic, schema: str, text: str
) -> None:
    with pytest.raises(Exception, match=text):
        topic.reader(spark).schema(schema).load().collect()


def test_the_arrow_schema_is_sparks_own(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from pyrmq._tables.schema import COLUMNS, ddl
    from pyrmq.spark.reading.schema import arrow_schema

    for text in (ddl(list(COLUMNS)), "body binary NOT NULL, tags string", ddl()):
        schema = StructType.fromDDL(text)
        assert isinstance(schema, StructType)
        # Private, and different in 4.1, which sets no time zone.
        named: dict[str, Any] = (
            {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        )
        assert arrow_schema(schema).equals(to_arrow_schema(schema, **named))
    assert spark.version


def test_a_topic_without_messages_has_no_rows(spark: SparkSession, topic: Topic) -> None:
    assert topic.read(spark).count() == 0


def test_an_empty_queue_beside_a_full_one_does_no_harm(spark: SparkSession, topic: Topic) -> None:
    topic.send(3, ["a", "b"])
    assert texts(topic.read(spark)) == ["a", "b"]


def test_offsets_cut_a_range(spark: SparkSession, topic: Topic) -> None:
    numbered(topic)
    broker = topic.broker_name()
    start = f'{{"{topic.name}":{{"{broker}":{{"0":3,"1":-2,"2":-1,"3":10}}}}}}'
    end = f'{{"{topic.name}":{{"{broker}":{{"0":5,"1":-1,"2":-1,"3":10}}}}}}'
    frame = topic.read(spark, startingOffsets=start, endingOffsets=end)
    assert texts(frame) == sorted(["0-3", "0-4", *(f"1-{number}" for number in range(10))])


def test_a_time_cuts_a_range(spark: SparkSession, topic: Topic) -> None:
    topic.send(0, ["early"])
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    topic.send(0, ["late"])
    assert texts(topic.read(spark, startingTimestamp=between)) == ["late"]
    assert texts(topic.read(spark, endingTimestamp=between)) == ["early"]
    assert texts(topic.read(spark, startingTimestamp=between + 3_600_000)) == []


def test_tags_are_filtered_and_their_gaps_are_no_loss(spark: SparkSession, topic: Topic) -> None:
    topic.send(0, [Sent(f"{n}".encode(), tags="abc"[n % 3]) for n in range(40)])
    expected = sorted(str(n) for n in range(40) if n % 3 != 1)
    assert texts(topic.read(spark, tags="a || c", failOnDataLoss="true")) == expected
    assert topic.read(spark, tags="a", limit=3).count() == 3


def test_a_limit_reads_no_more(spark: SparkSession, topic: Topic) -> None:
    assert numbered(topic).read(spark, limit=15).count() == 15


def test_small_queues_share_a_task_and_queues_are_cut_on_request(
    spark: SparkSession, topic: Topic
) -> None:
    numbered(topic)
    for options, tasks in [({}, 1), ({"minPartitions": 8}, 8), ({"maxRecordsPerPartition": 5}, 8)]:
        frame = topic.read(spark, **options)
        ids = frame.selectExpr("spark_partition_id()", "cast(body as string)").collect()
        assert len({row[0] for row in ids}) == tasks
        assert len({row[1] for row in ids}) == len(ids) == 40


def test_several_topics_and_a_pattern(spark: SparkSession, new_topic: Callable[..., Topic]) -> None:
    one, two = new_topic(1), new_topic(2)
    one.send(0, ["one"])
    two.send(1, ["two"])
    assert texts(one.read(spark, topic=f"{one.name}, {two.name}")) == ["one", "two"]
    options = one.options({"topicPattern": f"{one.name}|{two.name}"})
    del options["topic"]
    frame = spark.read.format("rocketmq").options(**options).load()
    assert texts(frame) == ["one", "two"]


def test_large_bodies_come_whole(spark: SparkSession, topic: Topic) -> None:
    bodies = [bytes([number]) * (3 << 20) for number in range(4)]
    topic.send(0, bodies)
    frame = topic.read(spark, maxBatchBytes=4 << 20).selectExpr("length(body)", "crc32(body)")
    import zlib

    assert sorted(tuple(row) for row in frame.collect()) == sorted(
        (len(body), zlib.crc32(body)) for body in bodies
    )


def test_sql_reads_a_view(spark: SparkSession, topic: Topic) -> None:
    topic.send(0, ["a"])
    options = ", ".join(f"{key} '{value}'" for key, value in topic.options({}).items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING rocketmq OPTIONS ({options})")
    assert texts(spark.sql("SELECT body FROM v")) == ["a"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingOfsets": "earliest"},
            "option startingofsets: unknown, did you mean startingOffsets",
        ),
        ({"topic": "NoSuchTopic"}, "topic NoSuchTopic: does not exist on"),
        ({"startingOffsets": "latest"}, "option startingOffsets: latest leaves nothing to read"),
        (
            {"startingOffsets": '{"NoSuchTopic":{"b":{"0":1}}}'},
            "option startingOffsets: does not exist: topic NoSuchTopic",
        ),
        ({"minPartitions": "a"}, "option minPartitions: expected a whole number"),
    ],
)
def test_a_wrong_option_fails_with_its_name(
    spark: SparkSession, topic: Topic, options: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match=text):
        topic.read(spark, **options).collect()


def test_offsets_outside_of_a_queue_are_refused(
    spark: SparkSession, new_topic: Callable[..., Topic]
) -> None:
    topic = new_topic(1)
    topic.send(0, ["a"])
    broker = topic.broker_name()
    place = f'{{"{topic.name}":{{"{broker}":{{"0":%d}}}}}}'
    with pytest.raises(Exception, match="endingOffsets has 5, the queue has 0 to 1"):
        topic.read(spark, endingOffsets=place % 5).collect()
    with pytest.raises(Exception, match="the start is after the end: 1 > 0"):
        topic.read(spark, startingOffsets=place % 1, endingOffsets=place % 0).collect()


def test_an_address_where_nobody_is_fails_with_the_address(spark: SparkSession) -> None:
    reader = spark.read.format("rocketmq").option("topic", "x").option("timeoutMs", 500)
    with pytest.raises(Exception, match=r"no name server answered; .*127\.0\.0\.1:1"):
        reader.option("nameServer", "127.0.0.1:1").load().collect()


def test_a_schema_may_want_text_and_single_keys(spark: SparkSession, topic: Topic) -> None:
    topic.send(0, [Sent("ünïcode".encode(), keys="k1 k2"), Sent(b"a\xffb")])
    frame = topic.reader(spark).schema("keys ARRAY<STRING>, body STRING, queueId INT").load()
    rows = {row.body: row["keys"] for row in frame.collect()}
    assert rows == {"ünïcode": ["k1", "k2"], "a\\xffb": None}


def test_a_bad_message_fails_the_read_or_is_null_or_left_out(
    spark: SparkSession, topic: Topic
) -> None:
    topic.send(0, [Sent(b"good"), Sent(b"no zlib", sys_flag=1), Sent(b"fine")])
    with pytest.raises(Exception, match=r"queue 0: the message at offset 1 .*Option onBadMessage"):
        topic.read(spark).collect()
    null = [row.body for row in topic.read(spark, onBadMessage="null").collect()]
    assert null == [b"good", None, b"fine"]
    skipped = [row.body for row in topic.read(spark, onBadMessage="skip").collect()]
    assert skipped == [b"good", b"fine"]


def test_a_topic_can_be_named_by_load(spark: SparkSession, topic: Topic) -> None:
    topic.send(0, ["a"])
    reader = spark.read.format("rocketmq").option("nameServer", topic.name_server)
    assert reader.load(topic.name).count() == 1
    with pytest.raises(
        Exception, match=r"option nameServer: is missing: load.'orders'. is a topic"
    ):
        spark.read.format("rocketmq").load("orders").count()
