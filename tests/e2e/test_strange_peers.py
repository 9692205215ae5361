"""Servers that answer nonsense, answers to other requests, topics that are deleted and created."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.e2e.relay import frames, listening, relayed
from tests.reference.frame import Frame, decode, encode

from pyrmq import Admin, Producer, PullConsumer, RmqError, SendTimeout, TopicNotFound
from pyrmq.testing import cluster

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator


def rubbish(kind: str) -> Callable[[socket.socket], None]:
    """Serve a name server that answers each request with an invalid answer."""

    def answer(question: Frame) -> bytes:
        good = Frame(code=0, flag=1, opaque=question.opaque, version=513)
        return {
            "bytes": os.urandom(64),
            "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "endless": b"\x7f\xff\xff\xff" + bytes(60),
            "no body": encode(good),
            "no json": encode(replace(good, body=b"\x00\xff{{{")),
            "a list": encode(replace(good, body=b"[1,2,3]")),
            "wrong types": encode(replace(good, body=b'{"brokerDatas":7,"queueDatas":"x"}')),
            "a code": encode(replace(good, code=-77, remark="\u0000\ud7ff?")),
            "a request": encode(replace(question, flag=0)),
        }[kind]

    def serve(one: socket.socket) -> None:
        for question in frames(one):
            one.sendall(answer(decode(question)))

    return serve


@pytest.mark.parametrize(
    "kind",
    [
        "bytes",
        "http",
        "endless",
        "no body",
        "no json",
        "a list",
        "wrong types",
        "a code",
        "a request",
    ],
)
def test_a_name_server_that_answers_rubbish_is_told_and_the_next_one_asked(
    address: str, topic: str, kind: str
) -> None:
    with listening(rubbish(kind)) as place:
        began = time.monotonic()
        with Producer(name_server=place, send_timeout=1) as producer:
            with pytest.raises(RmqError) as caught:
                producer.send(topic, b"x")
            assert place in str(caught.value)
            assert not caught.value.may_exist
        # The timeout plus a margin for a busy machine; nothing waits for ever.
        assert time.monotonic() - began < 10
        for names in (f"{place};{address}", f"{address};{place}"):
            with Producer(name_server=names, send_timeout=10) as producer:
                assert producer.send(topic, b"x").message_id


@pytest.mark.parametrize("by", [1, 1 << 20, -1])
def test_an_answer_with_a_number_that_nobody_asked_with_is_nobodys(topic: str, by: int) -> None:
    strange = threading.Event()

    def change(answer: Frame) -> Frame:
        if not strange.is_set():
            return answer
        number = (answer.opaque + by + (1 << 31)) % (1 << 32) - (1 << 31)
        return replace(answer, opaque=number)

    with (
        relayed(change) as running,
        Producer(name_server=running.name_server, retries=0) as producer,
    ):
        first = producer.send(topic, b"before")
        strange.set()
        began = time.monotonic()
        with pytest.raises(SendTimeout) as caught:
            producer.send(topic, b"lost", timeout=0.5)
        assert time.monotonic() - began < 5
        # The broker did store it; the sender cannot know.
        assert caught.value.may_exist
        assert caught.value.message_id
        strange.clear()
        assert producer.send(topic, b"after").message_id != first.message_id


def test_answers_of_two_sends_with_their_numbers_swapped_end_both_sends(topic: str) -> None:
    kept: list[Frame] = []
    lock = threading.Lock()

    def change(answer: Frame) -> Frame:
        with lock:
            kept.append(answer)
            # Each answer has the number of the previous one: the last is missing.
            return replace(answer, opaque=kept[-2].opaque) if len(kept) > 1 else answer

    with (
        relayed(change) as running,
        Producer(name_server=running.name_server, retries=0) as producer,
    ):
        producer.send(topic, b"known")
        futures = [
            producer.send_async(topic, b"x", queue=0, timeout=1, sharding_key=None)
            for _ in range(3)
        ]
        for future in futures:
            with suppress(RmqError):
                future.result(10)
            assert future.done()


def test_a_topic_that_is_deleted_and_made_again_goes_on_for_everybody() -> None:
    with (
        cluster(brokers=2) as running,
        ends_here(running.name_server) as (producer, consumer, admin),
    ):
        bodies = wrote(producer, 8)
        assert read(consumer, 8) == bodies
        admin.delete_topic("coming")
        admin.create_topic("coming", queues=4)
        # Both know the old queues; the new ones begin at 0.
        bodies = wrote(producer, 8)
        assert read(consumer, 8) == bodies


@contextmanager
def ends_here(names: str) -> Iterator[tuple[Producer, PullConsumer, Admin]]:
    """Yield a producer, a consumer and an administrator of one topic."""
    with (
        Admin(name_server=names) as admin,
        Producer(name_server=names, send_timeout=10) as producer,
        PullConsumer(name_server=names, group="goes-on") as consumer,
    ):
        admin.create_topic("coming", queues=4)
        consumer.subscribe("coming")
        yield producer, consumer, admin


def wrote(producer: Producer, count: int) -> list[bytes]:
    """Send `count` messages; return their bodies, sorted."""
    bodies = [os.urandom(8) for _ in range(count)]
    for body in bodies:
        producer.send("coming", body)
    return sorted(bodies)


def read(consumer: PullConsumer, count: int) -> list[bytes]:
    """Read `count` messages; return their bodies, sorted."""
    found: list[bytes] = []
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        # While the topic was missing, a pull may have been refused: that is reported once.
        with suppress(TopicNotFound):
            found += [message.body for message in consumer.poll(timeout=1)]
    return sorted(found)
