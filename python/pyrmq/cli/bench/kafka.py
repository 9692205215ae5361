"""The loads of `pyrmq bench` on Kafka, through confluent-kafka with its defaults."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyrmq.cli.bench.figures import (
    BACKLOG,
    SAMPLE,
    TIMEOUT,
    Figures,
    Measuring,
    drain,
    trips,
)
from pyrmq.cli.bench.loads import body_of, turns
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse

_POLL = 1000


def run(given: argparse.Namespace, confluent: Any) -> Figures:  # noqa: ANN401 - no types there
    """Run the requested load.

    Raises:
        ConfigError: the load has no counterpart.
    """
    _topic_there(given)
    if given.what == "produce":
        return _produce(given, confluent)
    if given.what == "consume":
        return _consume(given, confluent)
    return _roundtrip(given, confluent)


def _topic_there(given: argparse.Namespace) -> None:
    admin_module: Any = import_module("confluent_kafka.admin")
    admin = admin_module.AdminClient({"bootstrap.servers": given.kafka})
    if given.topic not in admin.list_topics(timeout=TIMEOUT).topics:
        made = admin.create_topics([admin_module.NewTopic(given.topic, given.queues, 1)])
        made[given.topic].result(TIMEOUT)


class _Sent:
    """Counts acknowledged messages, and measures the latency of some."""

    def __init__(self, latencies: list[float]) -> None:
        self.done = 0
        self.failed = 0
        self._latencies = latencies

    def plain(self, error: object, _: object) -> None:
        if error is None:
            self.done += 1
        else:
            self.failed += 1

    def timed(self) -> Any:  # noqa: ANN401 - the library has no types
        began = time.perf_counter()

        def on_delivery(error: object, message: object) -> None:
            self._latencies.append(time.perf_counter() - began)
            self.plain(error, message)

        return on_delivery


def _hand_over(producer: Any, topic: str, body: bytes, on_delivery: Any = None) -> None:  # noqa: ANN401
    """Produce, waiting for room in the library's queue."""
    while True:
        try:
            producer.produce(topic, body, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def _produce(given: argparse.Namespace, confluent: Any) -> Figures:  # noqa: ANN401
    if given.how not in ("produce", "sync"):
        raise ConfigError(f"`--how {given.how}` has no counterpart in confluent-kafka: use produce")
    figures = Figures(client="confluent-kafka", how=given.how, size=given.size)
    body, topic = body_of(given.size), given.topic
    producer = confluent.Producer({"bootstrap.servers": given.kafka, "acks": 1})
    sent = _Sent(figures.latencies)
    with Measuring(figures, lambda: sent.done, given.server_pid):
        for number in turns(given):
            timed = given.how == "sync" or number % SAMPLE == 0
            on_delivery = sent.timed() if timed else sent.plain
            _hand_over(producer, topic, body, on_delivery)
            if given.how == "sync":
                producer.flush()
            elif timed:
                producer.poll(0)
        producer.flush(TIMEOUT)
    figures.failed = sent.failed + len(producer)
    return figures


def _consumer(given: argparse.Namespace, confluent: Any, start: int) -> Any:  # noqa: ANN401
    consumer = confluent.Consumer(
        {"bootstrap.servers": given.kafka, "group.id": "pyrmq-bench", "enable.auto.commit": False}
    )
    parts = consumer.list_topics(given.topic).topics[given.topic].partitions
    consumer.assign([confluent.TopicPartition(given.topic, part, start) for part in parts])
    return consumer


def _consume(given: argparse.Namespace, confluent: Any) -> Figures:  # noqa: ANN401
    wanted = given.count or BACKLOG
    figures = Figures(client="confluent-kafka", how="consume", size=given.size)
    producer = confluent.Producer({"bootstrap.servers": given.kafka})
    body = body_of(given.size)
    for _ in range(wanted):
        _hand_over(producer, given.topic, body)
    producer.flush()
    consumer = _consumer(given, confluent, confluent.OFFSET_BEGINNING)
    drain(figures, wanted, lambda: consumer.consume(_POLL, TIMEOUT), given.server_pid)
    consumer.close()
    return figures


def _roundtrip(given: argparse.Namespace, confluent: Any) -> Figures:  # noqa: ANN401
    figures = Figures(client="confluent-kafka", how="flush + poll", size=given.size)
    producer = confluent.Producer({"bootstrap.servers": given.kafka, "acks": 1})
    consumer = _consumer(given, confluent, confluent.OFFSET_END)
    body = body_of(given.size)

    def trip() -> bool:
        producer.produce(given.topic, body)
        producer.flush()
        return consumer.poll(TIMEOUT) is not None

    consumer.poll(1.0)
    trips(figures, turns(given), trip, given.server_pid)
    consumer.close()
    return figures
