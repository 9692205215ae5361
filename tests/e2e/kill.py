"""Threads that send to a broker until it is gone, and the outcomes that they know."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.e2e.wire import await_true

from pyrmq import Producer, PullConsumer
from pyrmq.errors import RmqError

TOPIC = "killed"
THREADS = 4
Place = tuple[int, int]
"""Queue and offset."""


@dataclass
class Known:
    """Outcomes that the senders know.

    Attributes:
        stored: place to body of every acknowledged message.
        doubtful: bodies sent without an answer, or more than once.
    """

    stored: dict[Place, bytes] = field(default_factory=dict)
    doubtful: set[bytes] = field(default_factory=set)


class Senders:
    """Threads that each send one message after the other.

    Args:
        name_server: address of the name server.
        known: where they record outcomes.
        number: of the round, part of each body.
    """

    def __init__(self, name_server: str, known: Known, number: int) -> None:
        """Start them."""
        self.known = known
        self.acknowledged = 0
        self._ended = threading.Event()
        self._producer = Producer(name_server=name_server, group="killed", send_timeout=1.0)
        self._threads = [
            threading.Thread(target=self._run, args=(f"{number}/{thread}",))
            for thread in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, name: str) -> None:
        for number in count():
            if self._ended.is_set():
                return
            body = f"{name}/{number}/".encode() + b"x" * (number % 700)
            try:
                result = self._producer.send(TOPIC, body)
            except RmqError:
                self.known.doubtful.add(body)
                continue
            if result.may_be_duplicate:
                self.known.doubtful.add(body)
            place = (result.queue_id, result.queue_offset)
            assert self.known.stored.setdefault(place, body) == body, place
            self.acknowledged += 1

    def await_acknowledged(self, wanted: int, seconds: float) -> None:
        """Wait until `wanted` messages are acknowledged."""
        await_true(lambda: self.acknowledged >= wanted, seconds)

    def end(self) -> None:
        """Stop them."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._producer.close()


def read_all(name_server: str) -> dict[Place, bytes]:
    """Read every message of the topic: place to body."""
    found: dict[Place, bytes] = {}
    with PullConsumer(name_server=name_server, group="reader", start="first") as consumer:
        queues = consumer.queues(TOPIC)
        consumer.assign(dict.fromkeys(queues, 0))
        ends = {queue: consumer.bounds(queue)[1] for queue in queues}
        while any(consumer.position(queue) < end for queue, end in ends.items()):
            for message in consumer.poll(timeout=10.0):
                found[message.queue_id, message.queue_offset] = bytes(message.body)
    return found


def check(known: Known, found: dict[Place, bytes]) -> None:
    """Compare the found messages with the senders' outcomes."""
    lost = {place: body for place, body in known.stored.items() if found.get(place) != body}
    assert not lost, f"{len(lost)} of {len(known.stored)} acknowledged messages: {list(lost)[:5]}"
    acknowledged = set(known.stored.values())
    invented = [body for body in found.values() if body not in acknowledged | known.doubtful]
    assert not invented
    seen: dict[bytes, Place] = {}
    newest: dict[tuple[Any, ...], int] = {}
    ends: dict[int, int] = {}
    for place, body in sorted(found.items()):
        assert body not in seen or body in known.doubtful, f"{body!r} at {seen[body]} and {place}"
        seen[body] = place
        queue, offset = place
        assert offset == ends.get(queue, 0), f"queue {queue} has a gap before {offset}"
        ends[queue] = offset + 1
        number, thread, at = body.split(b"/")[:3]
        if body not in known.doubtful:
            assert newest.get((queue, number, thread), -1) < int(at), f"{body!r} is out of order"
            newest[queue, number, thread] = int(at)
