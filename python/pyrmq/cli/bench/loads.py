"""The three loads on a RocketMQ cluster."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrmq.admin import Admin
from pyrmq.cli.bench.figures import (
    BACKLOG,
    SAMPLE,
    TIMEOUT,
    Figures,
    Measuring,
    drain,
    trips,
)
from pyrmq.consumer import PullConsumer
from pyrmq.errors import ConfigError, RmqError, TopicNotFound
from pyrmq.producer import Producer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from pyrmq.cli.bench.server import Measured
    from pyrmq.message import QueueId

_GROUP = "pyrmq-bench"
_PACE = 0.005
"""Seconds between two checks of the clock under a rate."""
_POLL = 4096
_FILL = 10_000


def run(given: argparse.Namespace, cluster: Measured) -> Figures:
    """Run the requested load."""
    topic_there(cluster.name_server, given.topic, given.queues)
    load = {"produce": _produce, "consume": _consume, "roundtrip": _roundtrip}[given.what]
    return load(given, cluster)


def topic_there(name_server: str, topic: str, queues: int) -> None:
    """Create the topic if it does not exist."""
    with Admin(name_server=name_server) as admin:
        try:
            admin.route(topic)
        except TopicNotFound:
            admin.create_topic(topic, queues=queues)


def body_of(size: int) -> bytes:
    """A body of this size that does not compress well."""
    return bytes((number * 7919 + number // 13) % 251 for number in range(size))


def turns(given: argparse.Namespace) -> Iterator[int]:
    """Number messages until the time is up or the count is reached, no faster than the rate.

    Each of several threads may use its own; they share the count and the rate.
    """
    count = None if given.count is None else max(1, given.count // given.threads)
    rate = None if given.rate is None else given.rate / given.threads
    began = time.perf_counter()
    until = None if count is not None else began + given.seconds
    number = 0
    while count is None or number < count:
        if until is not None and number % 16 == 0 and time.perf_counter() >= until:
            return
        if rate is not None:
            ahead = number / rate - (time.perf_counter() - began)
            if ahead > _PACE:
                time.sleep(ahead)
        yield number
        number += 1


@dataclass
class _Sending:
    """Common part of the four ways of sending."""

    given: argparse.Namespace
    producer: Producer
    body: bytes
    latencies: list[float]
    failed: list[RmqError]

    def produce(self) -> None:
        topic, body, producer = self.given.topic, self.body, self.producer
        for number in turns(self.given):
            if number % SAMPLE:
                producer.produce(topic, body)
            else:
                producer.produce(topic, body, self._clock())
                producer.poll()
        producer.flush()

    def _clock(self) -> Callable[[RmqError | None, object], None]:
        began = time.perf_counter()

        def delivered(error: RmqError | None, _: object) -> None:
            if error is None:
                self.latencies.append(time.perf_counter() - began)
            else:
                self.failed.append(error)

        return delivered

    def one_by_one(self) -> None:
        for _ in turns(self.given):
            self._timed(lambda: self.producer.send(self.given.topic, self.body))

    def batches(self) -> None:
        batch = [self.body] * self.given.batch
        for number in turns(self.given):
            if number % self.given.batch == 0:
                self._timed(lambda: self.producer.send_batch(self.given.topic, batch))

    def _timed(self, send: Callable[[], object]) -> None:
        began = time.perf_counter()
        try:
            send()
        except RmqError as error:
            self.failed.append(error)
        else:
            self.latencies.append(time.perf_counter() - began)

    def futures(self) -> None:
        sent = []
        for number in turns(self.given):
            future = self.producer.send_async(self.given.topic, self.body)
            if number % SAMPLE == 0:
                future.add_done_callback(_done_callback(self._clock()))
            sent.append(future)
            if len(sent) > _FILL:
                del sent[: len(sent) // 2]
        for future in sent:
            future.exception(TIMEOUT)


def _done_callback(
    clock: Callable[[RmqError | None, object], None],
) -> Callable[[Future[Any]], None]:
    def done(future: Future[Any]) -> None:
        error = future.exception()
        clock(error if isinstance(error, RmqError) else None, None)

    return done


def _produce(given: argparse.Namespace, cluster: Measured) -> Figures:
    figures = Figures(client="pyrmq", how=given.how, size=given.size)
    failed: list[RmqError] = []
    with Producer(name_server=cluster.name_server, group=_GROUP) as producer:
        # The first send requests the route and connects, which is not measured.
        producer.send(given.topic, body_of(given.size))
        before = producer.stats()
        sending = _Sending(given, producer, body_of(given.size), figures.latencies, failed)
        way = {
            "produce": sending.produce,
            "batch": sending.batches,
            "async": sending.futures,
            "sync": sending.one_by_one,
        }[given.how]

        def confirmed() -> int:
            return producer.stats().confirmed - before.confirmed

        with (
            Measuring(figures, confirmed, cluster.pid),
            ThreadPoolExecutor(given.threads) as threads,
        ):
            for done in [threads.submit(way) for _ in range(given.threads)]:
                done.result()
        figures.failed = producer.stats().failed - before.failed
    return figures


def _consume(given: argparse.Namespace, cluster: Measured) -> Figures:
    wanted = given.count or BACKLOG
    figures = Figures(client="pyrmq", how="poll", size=given.size)
    with PullConsumer(
        name_server=cluster.name_server, group=_GROUP, start="first", auto_commit=None
    ) as consumer:
        queues = consumer.queues(given.topic)
        _fill(given, cluster, consumer, queues, wanted)
        consumer.assign({queue: consumer.bounds(queue)[0] for queue in queues})
        return drain(figures, wanted, lambda: consumer.poll(_POLL, TIMEOUT), cluster.pid)


def _fill(
    given: argparse.Namespace,
    cluster: Measured,
    consumer: PullConsumer,
    queues: list[QueueId],
    wanted: int,
) -> None:
    bounds = [consumer.bounds(queue) for queue in queues]
    missing = wanted - sum(last - first for first, last in bounds)
    body = body_of(given.size)
    with Producer(name_server=cluster.name_server, group=_GROUP) as producer:
        while missing > 0:
            producer.send_batch(given.topic, [body] * min(missing, _FILL))
            missing -= _FILL


def _roundtrip(given: argparse.Namespace, cluster: Measured) -> Figures:
    figures = Figures(client="pyrmq", how="send + poll", size=given.size)
    if given.threads > 1:
        raise ConfigError("`--threads` is for `produce`: a round trip has one message at a time")
    body = body_of(given.size)
    with (
        Producer(name_server=cluster.name_server, group=_GROUP) as producer,
        PullConsumer(
            name_server=cluster.name_server, group=_GROUP, start="last", auto_commit=None
        ) as consumer,
    ):
        consumer.assign(consumer.queues(given.topic))
        # One round trip before the clock starts: routes, connections, waiting pulls.
        _there_and_back(producer, consumer, given.topic, body)
        return trips(
            figures,
            turns(given),
            lambda: _there_and_back(producer, consumer, given.topic, body),
            cluster.pid,
        )


def _there_and_back(producer: Producer, consumer: PullConsumer, topic: str, body: bytes) -> bool:
    sent = producer.send(topic, body)
    while True:
        messages = consumer.poll(1, TIMEOUT)
        if not messages:
            return False
        if messages[0].message_id == sent.message_id:
            return True
