"""The same loads on Kafka by confluent-kafka with its own defaults, where that is installed."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyrmq.cli.bench.figures import Figures, Measuring
from pyrmq.cli.bench.loads import body_of, turns
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse

_SAMPLE = 64
_PATIENCE = 30.0
_BACKLOG = 1_000_000
_POLL = 1000


def run(given: argparse.Namespace, confluent: Any) -> Figures:  # noqa: ANN401 - no types there
    """Run the load that was asked for.

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
    if given.topic not in admin.list_topics(timeout=_PATIENCE).topics:
        made = admin.create_topics([admin_module.NewTopic(given.topic, given.queues, 1)])
        made[given.topic].result(_PATIENCE)


class _Sent:
    """Counts what the broker acknowledged, and takes the latency of some."""

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

        def told(error: object, message: object) -> None:
            self._latencies.append(time.perf_counter() - began)
            self.plain(error, message)

        return told


def _produce(given: argparse.Namespace, confluent: Any) -> Figures:  # noqa: ANN401
    if given.how not in ("produce", "sync"):
        raise ConfigError(f"`--how {given.how}` has no counterpart in confluent-kafka: use produce")
    figures = Figures(client="confluent-kafka", how=given.how, size=given.size)
    body, topic = body_of(given.size), given.topic
    producer = confluent.Producer({"bootstrap.servers": given.kafka, "acks": 1})
    sent = _Sent(figures.latencies)
    with Measuring(figures, lambda: sent.done, given.server_pid):
        for number in turns(given):
            timed = given.how == "sync" or number % _SAMPLE == 0
            told = sent.timed() if timed else sent.plain
            while True:
                try:
                    producer.produce(topic, body, on_delivery=told)
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
            if given.how == "sync":
                producer.flush()
            elif timed:
                producer.poll(0)
        producer.flush(_PATIENCE)
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
    wanted = given.count or _BACKLOG
    figures = Figures(client="confluent-kafka", how="consume", size=given.size)
    producer = confluent.Producer({"bootstrap.servers": given.kafka})
    body = body_of(given.size)
    for _ in range(wanted):
        while True:
            try:
                producer.produce(given.topic, body)
            except BufferError:
                producer.poll(0.01)
            else:
                break
    producer.flush()
    consumer = _consumer(given, confluent, confluent.OFFSET_BEGINNING)
    read = 0
    with Measuring(figures, lambda: read, given.server_pid):
        while read < wanted:
            messages = consumer.consume(_POLL, _PATIENCE)
            if not messages:
                figures.failed = wanted - read
                break
            read += len(messages)
    consumer.close()
    return figures


def _roundtrip(given: argparse.Namespace, confluent: Any) -> Figures:  # noqa: ANN401
    figures = Figures(client="confluent-kafka", how="flush + poll", size=given.size)
    producer = confluent.Producer({"bootstrap.servers": given.kafka, "acks": 1})
    consumer = _consumer(given, confluent, confluent.OFFSET_END)
    body, done = body_of(given.size), 0
    consumer.poll(1.0)
    with Measuring(figures, lambda: done, given.server_pid):
        for _ in turns(given):
            began = time.perf_counter()
            producer.produce(given.topic, body)
            producer.flush()
            if consumer.poll(_PATIENCE) is None:
                figures.failed += 1
                break
            figures.latencies.append(time.perf_counter() - began)
            done += 1
    consumer.close()
    return figures
