"""Tables of messages sent without Spark: every column, order by key, rows that are no messages."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyrmq import Producer
from pyrmq._tables.messages import check_columns
from pyrmq._tables.sender import TableSender
from pyrmq.errors import ConfigError
from tests.reference import properties as reference
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing import Cluster

pytestmark = pytest.mark.timeout(60)
NUMBERS = itertools.count(1)
PAIRS = pa.map_(pa.string(), pa.string())


class Rig:
    """A producer, and the topic of a test."""

    def __init__(self, running: Cluster, producer: Producer) -> None:
        self.producer = producer
        name = f"Sender{next(NUMBERS)}"
        self.topic = Topic(name, running.name_server, running.brokers[0].address).create(4)

    def send(
        self, table: pa.RecordBatch, topic: str | None = None, **types: str
    ) -> list[tuple[int, str]]:
        """Send a table; its rows that are no messages, and why."""
        names = check_columns({**dict.fromkeys(table.schema.names, "string"), **types})
        sender = TableSender(self.producer, names, topic or self.topic.name)
        return [(bad.row, bad.reason) for bad in sender.send(table) + sender.flush()]

    def stored(self) -> list[tuple[int, bytes, dict[str, str]]]:
        """Return queue, body and properties of every message, by queue and offset."""
        found = []
        for queue in range(4):
            count = int(
                self.topic.ask(30, {"topic": self.topic.name, "queueId": queue}).fields["offset"]
            )
            found += [
                (queue, record.body, reference.decode(record.properties))
                for record in self.topic.records(queue, count)
            ]
        return found

    def await_stored(self, count: int) -> list[tuple[int, bytes, dict[str, str]]]:
        """Wait until `count` messages are in the topic's queues."""
        deadline = time.monotonic() + 20
        while len(found := self.stored()) < count:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found


@pytest.fixture
def rig(rocketmq_session: Cluster) -> Iterator[Rig]:
    """A producer and a topic."""
    with Producer(name_server=rocketmq_session.name_server) as producer:
        rig = Rig(rocketmq_session, producer)
        yield rig
        rig.topic.connections.close()


def test_every_column_becomes_its_part_of_a_message(rig: Rig) -> None:
    table = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"one", b"\x00\xff", b"x"], pa.binary()),
            "tags": pa.array(["red", None, "grün"]),
            "keys": pa.array([["k1", "k2"], None, ["k3"]], pa.list_(pa.string())),
            "properties": pa.array([[("color", "ünïcode")], None, []], PAIRS),
        }
    )
    types = {"keys": "array<string>", "properties": "map<string,string>", "body": "binary"}
    # A slice has its parent's memory: only its own rows are sent.
    padded = pa.Table.from_batches([table, table, table]).combine_chunks().to_batches()[0]
    assert rig.send(padded.slice(3, 3), **types) == []
    found = {body: properties for _, body, properties in rig.await_stored(3)}
    assert found.keys() == {b"one", b"\x00\xff", b"x"}
    assert found[b"one"]["TAGS"] == "red"
    assert found[b"one"]["KEYS"] == "k1 k2"
    assert found[b"one"]["color"] == "ünïcode"
    assert found[b"x"]["TAGS"] == "grün"
    assert not {"TAGS", "KEYS", "color"} & found[b"\x00\xff"].keys()
    assert all(len(properties["UNIQ_KEY"]) == 32 for properties in found.values())


def test_rows_of_one_sharding_key_keep_their_order(rig: Rig) -> None:
    rows = [(f"key{number % 5}", f"{number:05}") for number in range(4000)]
    table = pa.RecordBatch.from_pydict(
        {"shardingKey": [key for key, _ in rows], "body": [body for _, body in rows]}
    )
    for part in range(4):
        assert rig.send(table.slice(part * 1000, 1000)) == []
    found = rig.await_stored(4000)
    for wanted in range(5):
        mine = [
            (queue, body)
            for queue, body, properties in found
            if properties["__SHARDINGKEY"] == f"key{wanted}"
        ]
        assert len({queue for queue, _ in mine}) == 1
        bodies = [body for _, body in mine]
        assert len(bodies) == 800
        assert bodies == sorted(bodies)


def test_queues_and_delays_are_as_the_columns_say(rig: Rig) -> None:
    table = pa.RecordBatch.from_pydict(
        {
            "body": ["a", "b", "c"],
            "queueId": pa.array([2, 0, 2], pa.int32()),
            "deliverAt": pa.array(
                [None, datetime.now(UTC) + timedelta(hours=1), None], pa.timestamp("us", tz="UTC")
            ),
        }
    )
    assert rig.send(table, queueId="int", deliverAt="timestamp") == []
    found = rig.await_stored(2)
    # The delayed one is kept by the broker's timer.
    assert [(queue, body) for queue, body, _ in found] == [(2, b"a"), (2, b"c")]


def test_a_million_bytes_and_many_rows_arrive_once(rig: Rig) -> None:
    table = pa.RecordBatch.from_pydict({"body": [f"{number}" for number in range(30_000)]})
    large = pa.RecordBatch.from_pydict({"body": ["x" * 3_000_000, "y"]})
    assert rig.send(table) == []
    assert rig.send(large) == []
    bodies = [body for _, body, _ in rig.await_stored(30_002)]
    assert len(bodies) == len(set(bodies)) == 30_002


def test_rows_that_are_no_messages_are_named_and_the_others_are_sent(rig: Rig) -> None:
    table = pa.RecordBatch.from_pydict(
        {
            "body": ["good", None, "x" * 5_000_000, "reserved", "fine"],
            "properties": pa.array([None, None, None, [("KEYS", "k")], None], PAIRS),
        }
    )
    bad = dict(rig.send(table, properties="map<string,string>"))
    assert bad.keys() == {1, 2, 3}
    assert bad[1] == "the body is NULL"
    assert "5000000" in bad[2]
    assert "has a meaning of its own in RocketMQ" in bad[3]
    assert {body for _, body, _ in rig.await_stored(2)} == {b"good", b"fine"}


def test_keys_of_a_list_may_be_null_but_have_no_space(rig: Rig) -> None:
    keys = [["k1", None, "k2"], ["a b", "c"], [None], None, [], ["k3"]]
    table = pa.RecordBatch.from_pydict(
        {
            "body": [f"{number}" for number in range(7)],
            "keys": pa.array([["cut away"], *keys], pa.list_(pa.string())),
        }
    )
    bad = rig.send(table.slice(1), keys="array<string>")
    assert [(row, reason[:17]) for row, reason in bad] == [(1, "a key has a space")]
    found = {int(body): properties.get("KEYS") for _, body, properties in rig.await_stored(5)}
    assert found == {1: "k1 k2", 3: None, 4: None, 5: None, 6: "k3"}


def test_a_topic_column_says_where_each_row_goes(rig: Rig, rocketmq_session: Cluster) -> None:
    other = Topic(f"{rig.topic.name}B", rocketmq_session.name_server, rig.topic.broker).create(4)
    table = pa.RecordBatch.from_pydict(
        {
            "topic": [rig.topic.name, other.name, None, rig.topic.name],
            "body": ["a", "b", "c", "d"],
        }
    )
    names = check_columns({"topic": "string", "body": "string"})
    sender = TableSender(rig.producer, names, None)
    bad = sender.send(table) + sender.flush()
    assert [(row.row, row.reason[:17]) for row in bad] == [(2, "the topic is NULL")]
    assert {body for _, body, _ in rig.await_stored(2)} == {b"a", b"d"}
    other.connections.close()


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ({"bdy": "string"}, "column bdy: unknown, did you mean body?"),
        ({"value": "binary"}, "column value: unknown, in RocketMQ it is body"),
        ({"tags": "string"}, "column body is missing: there are tags"),
        ({"body": "int"}, "column body: has type int, expected string or binary"),
        ({"body": "string", "Body": "string"}, "column Body: is there twice"),
        ({"body": "string", "delay": "int", "delayLevel": "int"}, "only one of the columns"),
    ],
)
def test_other_columns_are_errors(types: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text.replace("?", r"\?")):
        check_columns(types)


@pytest.mark.rocketmq(max_message_size=3000)
def test_a_row_that_only_the_broker_refuses_is_named_and_the_others_are_sent(rig: Rig) -> None:
    bodies = ["x" * (5000 if number in {3, 70} else 100) for number in range(90)]
    bad = rig.send(pa.RecordBatch.from_pydict({"body": bodies}))
    assert sorted(row for row, _ in bad) == [3, 70]
    assert all("MESSAGE_ILLEGAL" in reason for _, reason in bad), bad
    found = rig.await_stored(88)
    assert len(found) == 88
    assert {len(body) for _, body, _ in found} == {100}


@pytest.mark.parametrize(
    ("column", "type_", "values", "reason"),
    [
        (
            "delay",
            "double",
            [1e-9, float("nan"), float("inf"), -5.0, 1e18],
            "the delay is not a time",
        ),
        ("delayLevel", "int", [0, -1, 19], "the delayLevel is not between 0 and 18"),
        ("queueId", "int", [0, -1], "the queueId is negative"),
        ("queueId", "int", [0, 99], "the queue that was asked for"),
        ("tags", "string", ["a", "a || b"], "the tag has ||"),
        ("deliverAt", "timestamp", [1, -(10**15)], "deliverAt is before 1970"),
    ],
)
def test_rows_with_values_that_no_message_can_have_are_named(
    rig: Rig, column: str, type_: str, values: list[object], reason: str
) -> None:
    kinds = {
        "int": pa.int32(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "double": pa.float64(),
    }
    bodies = [f"{number}" for number in range(len(values))]
    table = pa.RecordBatch.from_pydict({"body": bodies, column: pa.array(values, kinds[type_])})
    bad = rig.send(table, **{column: type_})
    assert [row for row, _ in bad] == [*range(1, len(values))]
    assert all(reason in text for _, text in bad), bad
    assert len(rig.await_stored(1)) == 1
