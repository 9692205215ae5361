"""A namespace around group and topics: producers, consumers, requests and transactions in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyrmq import (
    Admin,
    ConfigError,
    Producer,
    PullConsumer,
    QueueId,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
    aio,
)


def test_a_consumer_of_the_namespace_knows_topics_by_their_plain_names(
    address: str, topic: str
) -> None:
    with Producer(name_server=address, namespace="dev") as producer:
        for number in range(8):
            producer.send(topic, str(number))
    options: dict[str, Any] = {"name_server": address, "group": f"{topic}-readers"}
    with PullConsumer(**options, namespace="dev") as consumer:
        consumer.subscribe(topic)
        found: list[ReceivedMessage] = []
        while len(found) < 8:
            found += consumer.poll(timeout=10)
        assert {message.topic for message in found} == {topic}
        assert {queue.topic for queue in consumer.assignment()} == {topic}
        queue = consumer.queues(topic)[0]
        assert queue.topic == topic
        consumer.commit()
        assert consumer.bounds(queue) == (0, 1)
        assert consumer.committed(queue) == 1
        consumer.seek(queue, 0)
        assert consumer.poll(timeout=10)[0].queue_offset == 0
    with Admin(name_server=address) as admin:
        assert f"dev%{topic}" in admin.topics()
        assert topic not in admin.topics()
    # Without it, the queues have their full names, and the group is another one.
    with PullConsumer(**options) as plain:
        whole = QueueId(f"dev%{topic}", queue.broker, queue.queue_id)
        plain.assign({whole: 0})
        assert plain.poll(timeout=10)[0].topic == f"dev%{topic}"
        assert plain.committed(whole) is None


def test_requests_and_checks_stay_in_the_namespace(address: str, topic: str) -> None:
    asked: list[str] = []

    async def main() -> None:
        options: dict[str, Any] = {"name_server": address, "namespace": "dev"}
        async with (
            aio.Producer(**options, group=f"{topic}-asking") as asking,
            aio.Producer(**options, group=f"{topic}-replying") as replying,
            aio.PullConsumer(**options, group=f"{topic}-reading") as consumer,
        ):
            request = asyncio.ensure_future(asking.request(topic, b"tea?", timeout=10))
            await consumer.subscribe(topic)
            [message] = await consumer.poll(timeout=10)
            assert message.topic == topic
            sent = await replying.reply(message, b"yes")
            assert sent.topic == "DefaultCluster_REPLY_TOPIC"
            assert (await request).body == b"yes"

    asyncio.run(asyncio.wait_for(main(), 25))

    def check(message: object) -> TransactionState:
        raise AssertionError(f"asked about {message!r}")

    with TransactionProducer(
        check=check, name_server=address, namespace="dev", group=topic
    ) as producer:
        result = producer.send_in_transaction(
            f"{topic}-halves", b"x", lambda half: asked.append(half.topic)
        )
    assert (asked, result.confirmed) == ([f"{topic}-halves"], True)
    with PullConsumer(name_server=address, namespace="dev", group=topic) as consumer:
        consumer.subscribe(f"{topic}-halves")
        assert consumer.poll(timeout=10)[0].topic == f"{topic}-halves"


@pytest.mark.parametrize("kind", [Producer, PullConsumer])
def test_a_namespace_that_no_name_can_have_is_refused(
    kind: type[Producer | PullConsumer],
) -> None:
    with pytest.raises(ConfigError, match="option `namespace`"):
        kind(name_server="127.0.0.1:1", group="g", namespace="a b")


def test_traces_name_group_and_topic_without_the_namespace_as_javas(
    address: str, topic: str
) -> None:
    traces = f"traces-of-{topic}"
    with TransactionProducer(
        name_server=address,
        group="shop",
        namespace="dev",
        trace=True,
        trace_topic=traces,
        check=lambda _: TransactionState.COMMIT,
    ) as producer:
        producer.send(topic, b"1")
        producer.send_in_transaction(topic, b"2", lambda _: TransactionState.COMMIT)
    told: dict[str, list[str]] = {}
    with PullConsumer(name_server=address, group=f"read-{topic}") as consumer:
        consumer.subscribe(traces)
        while not {"Pub", "EndTransaction"} <= set(told):
            messages = consumer.poll(timeout=10)
            assert messages, told
            for message in messages:
                for context in message.body.decode().split("\x02")[:-1]:
                    fields = context.split("\x01")
                    told[fields[0]] = fields
    for fields in told.values():
        assert fields[3:5] == ["shop", topic]
