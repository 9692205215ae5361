"""Loads that measure the time from send to receive, on a schedule, as `benches.open_loop` says."""

from __future__ import annotations

import threading
import time
import uuid
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from benches.e2e.rivals.common import FLUSH_S, Clock, now, since
from benches.e2e.rivals.receiving import confluent_consumer, new_group
from benches.open_loop import OpenLoop, at_rate

if TYPE_CHECKING:
    from collections.abc import Callable

RATE, LATENCIES = 200, 1000
"""Messages a second, and in all."""
STAMP = 24
"""Bytes of the scheduled time at the beginning of a body."""
FIRST = b"0".ljust(STAMP)
"""Body of a message that shows that the consumer reads; it is not measured."""


def _topic() -> str:
    return f"bench-latency-{uuid.uuid4().hex[:8]}"


def _stamp(at: float) -> bytes:
    return f"{at:<{STAMP}.9f}".encode()


def _age(body: bytes) -> float:
    return time.perf_counter() - float(body[:STAMP])


def _send_all(send: Callable[[bytes], object], body: bytes) -> list[float]:
    return at_rate(lambda at: send(_stamp(at) + body[STAMP:]), LATENCIES, RATE)


class Sender:
    """Sends on the schedule in its own thread, with a consumer in this one."""

    def __init__(self, send: Callable[[bytes], object], body: bytes) -> None:
        """Start."""
        self._late: list[float] = []
        self._thread = threading.Thread(target=lambda: self._late.extend(_send_all(send, body)))
        self._thread.start()

    def late(self) -> list[float]:
        """Wait for the end; return how late the sends began."""
        self._thread.join()
        return self._late


def pyrmq_latency(address: str, _: int, body: bytes, figure: str = "p50") -> tuple[Clock, OpenLoop]:
    """Send 200 messages a second to one waiting push consumer."""
    from pyrmq import Producer, PushConsumer

    took: list[float] = []
    is_reading, done = threading.Event(), threading.Event()
    topic = _topic()
    consumer = PushConsumer(name_server=address, group=new_group(), threads=1)

    def arrived(body: bytes) -> None:
        if body == FIRST:
            is_reading.set()
            return
        took.append(_age(body))
        if len(took) == LATENCIES:
            done.set()

    with Producer(name_server=address, group="bench") as producer:
        producer.send(topic, FIRST)
        consumer.subscribe(topic, arrived)
        with consumer:
            if not is_reading.wait(FLUSH_S):
                raise TimeoutError("the first message did not arrive")
            began = now()
            late = _send_all(lambda stamped: producer.send(topic, stamped), body)
            if not done.wait(FLUSH_S):
                raise TimeoutError(f"{len(took)} of {LATENCIES} messages arrived")
            return since(began), OpenLoop(took, late, figure)


def pyrmq_pop_latency(address: str, _: int, body: bytes) -> tuple[Clock, OpenLoop]:
    """Send 200 messages a second to a `SimpleConsumer` whose receive is held."""
    from pyrmq import Producer, SimpleConsumer

    took: list[float] = []
    topic = _topic()
    with Producer(name_server=address, group="bench") as producer:
        producer.send(topic, FIRST)
        with SimpleConsumer(name_server=address, group=new_group()) as consumer:
            consumer.subscribe(topic)
            deadline = time.monotonic() + FLUSH_S
            while not (first := consumer.receive(max_messages=32, wait=1.0)):
                if time.monotonic() > deadline:
                    raise TimeoutError("the first message did not arrive")
            consumer.ack(first)
            began = now()
            sender = Sender(lambda stamped: producer.send(topic, stamped), body)
            while len(took) < LATENCIES:
                received = consumer.receive(max_messages=32, wait=1.0)
                took += [_age(message.body) for message in received]
                if received:
                    consumer.ack(received)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(took)} of {LATENCIES} messages arrived")
            return since(began), OpenLoop(took, sender.late())


def confluent_latency(address: str, _: int, body: bytes) -> tuple[Clock, OpenLoop]:
    """Send 200 messages a second to a polling confluent-kafka consumer."""
    module = import_module("confluent_kafka")
    topic = _topic()
    producer = module.Producer({"bootstrap.servers": address, "acks": 1, "linger.ms": 0})
    took: list[float] = []

    def send(stamped: bytes) -> None:
        producer.produce(topic, stamped)
        producer.flush()

    send(FIRST)
    consumer = confluent_consumer(address, topic)
    try:
        while consumer.poll(1.0) is None:
            pass
        began = now()
        sender = Sender(send, body)
        while len(took) < LATENCIES:
            message = consumer.poll(5.0)
            if message is None:
                raise TimeoutError(f"{len(took)} of {LATENCIES} messages arrived")
            took.append(_age(message.value()))
        return since(began), OpenLoop(took, sender.late())
    finally:
        consumer.close()


LOADS: dict[str, Callable[[str, int, bytes], tuple[Clock, OpenLoop]]] = {
    "pyrmq latency": pyrmq_latency,
    "pyrmq latency p99": partial(pyrmq_latency, figure="p99"),
    "pyrmq pop latency": pyrmq_pop_latency,
    "confluent latency": confluent_latency,
}
