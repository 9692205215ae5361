"""Which messages are read: single queues, times by queue, SQL92, a namespace. Without Spark."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyrmq import Admin, Producer
from pyrmq._tables.batch import planned
from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.errors import BrokerAway, OffsetError
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.schema import COLUMNS, arrow_type
from pyrmq._tables.worker import Part, batches
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing import Cluster

pytestmark = [
    pytest.mark.rocketmq(brokers=2, enable_property_filter=True),
    pytest.mark.timeout(120),
]
NUMBERS = itertools.count(1)


def read(given: dict[str, str], *columns: str) -> list[tuple[object, ...]]:
    """Read some columns, as Spark's tasks do; sorted."""
    options = Options.parse({"timeoutMs": "3000", **given}, batch=True)
    names = columns or ("body",)
    schema = pa.schema([pa.field(name, arrow_type(COLUMNS[name])) for name in names])
    tasks, addresses = planned(options)
    parts = [Part(addresses[part.queue.broker], part) for task in tasks for part in task]
    rows = batches(options, schema, parts, away_ms=options.timeout_ms)
    return sorted(tuple(row.values()) for table in rows for row in table.to_pylist())


@pytest.fixture
def topics(rocketmq_session: Cluster) -> Iterator[list[Topic]]:
    """One topic of two queues on each of two brokers."""
    name = f"Choice{next(NUMBERS)}"
    with Admin(name_server=rocketmq_session.name_server) as admin:
        admin.create_topic(name, queues=2)
    made = [
        Topic(name, rocketmq_session.name_server, broker.address)
        for broker in rocketmq_session.brokers
    ]
    for number, topic in enumerate(made):
        for queue_id in (0, 1):
            topic.send(queue_id, [Sent(f"{number}{queue_id}".encode())])
    yield made
    for topic in made:
        topic.connections.close()


def given_of(topic: Topic, **more: str) -> dict[str, str]:
    return {"nameServer": topic.name_server, "topic": topic.name, **more}


def test_single_queues_are_read(topics: list[Topic], rocketmq_session: Cluster) -> None:
    first, second = (broker.name for broker in rocketmq_session.brokers)
    queues = json.dumps({topics[0].name: {first: [1], second: [0]}})
    given = {"nameServer": topics[0].name_server, "queues": queues}
    assert read(given) == [(b"01",), (b"10",)]
    wrong = json.dumps({topics[0].name: {first: [7]}})
    with pytest.raises(OffsetError, match=f"option queues: does not exist: .*{first}, queue 7"):
        read({**given, "queues": wrong})
    away = json.dumps({topics[0].name: {"nobody": [0]}})
    with pytest.raises(
        BrokerAway, match=r"broker nobody is needed, .* correct option brokers or queues"
    ):
        read({**given, "queues": away, "timeoutMs": "500"})


def test_each_queue_has_its_own_time(topics: list[Topic], rocketmq_session: Cluster) -> None:
    name = topics[0].name
    later = int(time.time() * 1000) + 3_600_000
    brokers = [broker.name for broker in rocketmq_session.brokers]
    times = {name: {brokers[0]: {"0": 1, "1": later}, brokers[1]: {"0": later, "1": 1}}}
    given = given_of(topics[0], startingOffsetsByTimestamp=json.dumps(times))
    assert read(given) == [(b"00",), (b"11",)]
    assert len(read({**given, "startingTimestamp": "1"})) == 4
    last = {name: {name_of: {"0": -1, "1": -1} for name_of in brokers}}
    assert len(read({**given, "startingOffsets": json.dumps(last)})) == 2
    with pytest.raises(OffsetError, match=r"queue 1: nothing was stored since .*=latest starts"):
        read({**given, "startingOffsetsByTimestampStrategy": "error"})
    ends = given_of(topics[0], endingOffsetsByTimestamp=json.dumps(times))
    assert read(ends) == [(b"01",), (b"10",)]
    del times[name][brokers[1]]
    with pytest.raises(OffsetError, match=f"startingOffsetsByTimestamp: missing: .*{brokers[1]}"):
        read({**given, "startingOffsetsByTimestamp": json.dumps(times)})


def test_the_broker_evaluates_a_sql_condition(topics: list[Topic]) -> None:
    for topic in topics:
        messages = [
            Sent(f"{n}".encode(), properties={"price": str(n)}, tags="ab"[n % 2]) for n in range(50)
        ]
        topic.send(0, messages)
    found = read(given_of(topics[0], sql="price >= 48 AND TAGS = 'a'"), "body", "tags")
    assert found == [(b"48", "a"), (b"48", "a")]
    with pytest.raises(Exception, match=r"price >>|SQL|filter"):
        read(given_of(topics[0], sql="price >> 1"))


def test_a_namespace_is_added_and_taken_off(rocketmq_session: Cluster) -> None:
    name_server = rocketmq_session.name_server
    with Admin(name_server=name_server) as admin:
        admin.create_topic("shop%Spaced", queues=1)
    with Producer(name_server=name_server, namespace="shop") as producer:
        producer.send("Spaced", b"one")
    given = {"nameServer": name_server, "namespace": "shop"}
    for more in ({"topic": "Spaced"}, {"topicPattern": "Spac.*"}, {"topic": "shop%Spaced"}):
        assert read({**given, **more}, "topic", "body") == [("Spaced", b"one")]
    whole = {"nameServer": name_server, "topic": "shop%Spaced"}
    assert read(whole, "topic") == [("shop%Spaced",)]


def test_properties_cost_time_in_proportion_to_their_length(topics: list[Topic]) -> None:
    def seconds(queue_id: int, count: int) -> float:
        properties = {f"{number:x}": "v" for number in range(count)}
        topics[0].send(queue_id, [Sent(b"x", properties=properties)] * 100)
        queues = {topics[0].name: {topics[0].broker_name(): [queue_id]}}
        given = {"nameServer": topics[0].name_server, "queues": json.dumps(queues)}
        begun = time.process_time()
        rows = read(given, "queueOffset", "properties")
        spent = time.process_time() - begun
        assert sum(len(row[1] or ()) >= count for row in rows) == 100  # type: ignore[arg-type]
        return spent

    few, many = seconds(0, 400), seconds(1, 4000)
    # Comparing each with each would take a hundred times as long.
    assert many < 40 * few


def test_sizes_are_those_of_the_stored_messages(topics: list[Topic]) -> None:
    topics[0].send(0, [Sent(b"x" * 5000)])
    options = Options.parse(given_of(topics[0]), batch=False)
    cluster = RemoteCluster(options)
    try:
        queue = next(
            q for q, held in cluster.snapshot([topics[0].name]).bounds.items() if held[1] == 2
        )
        sizes = cluster.sizes([(queue, 0), (queue, 1), (queue, 2)])
        assert 5000 < sizes[queue, 1] < 5300
        assert sizes[queue, 0] < 300
        assert (queue, 2) not in sizes
        assert cluster.compacted([topics[0].name]) == set()
    finally:
        cluster.close()
