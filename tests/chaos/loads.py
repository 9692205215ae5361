"""Loads of the chaos test: each sends its share in its own way and records outcomes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from pyrmq import Message, Producer, RmqError, SendResult, aio
from pyrmq.errors import BatchSendError

TIMEOUT_S = 1.0
SHORT_S = 0.4
BATCH = 50
IN_FLIGHT = 200
KEYS = 5

Place = tuple[str, int, int]
"""Broker, queue, offset."""


@dataclass
class Told:
    """A load's outcomes of its messages.

    Attributes:
        name: the load's name; its bodies begin with it.
        ordered: its messages with a key keep their order.
        stored: body to (place, unique id, may be duplicate).
        refused: bodies that certainly are not stored.
        unknown: bodies that may be.
        twice: bodies with more than one outcome.
        late: for each call that exceeded its timeout: when it should have ended, when it did, and
            the native id of the thread that got the outcome.
        errors: count of each error.
    """

    name: str
    ordered: bool = False
    stored: dict[str, tuple[Place, str, bool]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    twice: list[str] = field(default_factory=list)
    late: list[tuple[float, float, int]] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """Number of messages with an outcome."""
        return len(self.stored) + len(self.refused) + len(self.unknown)

    def note(self, body: str, outcome: SendResult | BaseException | None) -> None:
        """Record one outcome."""
        if body in self.stored or body in self.refused or body in self.unknown:
            self.twice.append(body)
        if isinstance(outcome, SendResult):
            place = (outcome.broker, outcome.queue_id, outcome.queue_offset)
            self.stored[body] = (place, outcome.message_id, outcome.may_be_duplicate)
            return
        assert isinstance(outcome, RmqError), f"{body}: {outcome!r}"
        (self.unknown if self.failed(outcome) else self.refused).add(body)

    def failed(self, error: RmqError) -> bool:
        """Count an error; return whether its message may exist anyway."""
        may_exist = error.may_exist
        self.errors[f"{type(error).__name__}{', may exist' if may_exist else ''}"] += 1
        return may_exist

    def took(self, began: float, timeout: float) -> None:
        """Record the end of a call that exceeded its timeout."""
        now = time.monotonic()
        if now > began + timeout:
            self.late.append((began + timeout, now, threading.get_native_id()))


class Quota:
    """Number of messages that a load may send so far: each step of the script raises it."""

    def __init__(self) -> None:
        """Start at zero."""
        self._allowed = 0
        self._changed = threading.Condition()

    def allow(self, count: int) -> None:
        """Let every load send up to ``count`` messages."""
        with self._changed:
            self._allowed = count
            self._changed.notify_all()

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """Wait until message ``number`` may be sent; return False if the timeout comes first."""
        with self._changed:
            return self._changed.wait_for(lambda: number < self._allowed, timeout)


def keyed(told: Told, number: int) -> str | None:
    """Return the sharding key of a message if its load keeps order."""
    return f"{told.name}-{number % KEYS}" if told.ordered else None


def send_each(producer: Producer, told: Told, topic: str, count: int, quota: Quota) -> None:
    """Send one message after the other; every third has a shorter timeout."""
    for number in range(count):
        quota.wait(number)
        body = f"{told.name}:{number}"
        short = SHORT_S if number % 3 == 0 else None
        began = time.monotonic()
        try:
            key = keyed(told, number)
            told.note(body, producer.send(topic, body, sharding_key=key, timeout=short))
        except RmqError as error:
            told.note(body, error)
        told.took(began, short or TIMEOUT_S)


def send_futures(producer: Producer, told: Told, topic: str, count: int, quota: Quota) -> None:
    """Send with many futures at once."""
    room = threading.Semaphore(IN_FLIGHT)
    for number in range(count):
        quota.wait(number)
        room.acquire()
        body = f"{told.name}:{number}"
        began = time.monotonic()
        try:
            future = producer.send_async(topic, body, sharding_key=keyed(told, number))
        except RmqError as error:
            told.note(body, error)
            room.release()
            continue

        def landed(done: object, body: str = body, began: float = began) -> None:
            told.took(began, TIMEOUT_S)
            told.note(body, done.exception() or done.result())  # type: ignore[attr-defined]
            room.release()

        future.add_done_callback(landed)
    for _ in range(IN_FLIGHT):
        assert room.acquire(timeout=60), f"{told.name}: a future is never done"


def produce(producer: Producer, told: Told, topic: str, count: int, quota: Quota) -> None:
    """Send gathered messages with a callback each."""
    waiting = [0]
    for number in range(count):
        while waiting[0] >= IN_FLIGHT or not quota.wait(number, timeout=0.0):
            producer.poll(0.02)
        body = f"{told.name}:{number}"
        began = time.monotonic()

        def landed(
            error: RmqError | None,
            result: SendResult | None,
            body: str = body,
            began: float = began,
        ) -> None:
            waiting[0] -= 1
            told.took(began, TIMEOUT_S)
            told.note(body, error or result)

        waiting[0] += 1
        try:
            producer.produce(topic, body, landed, sharding_key=keyed(told, number))
        except RmqError as error:
            landed(error, None)
        if number % BATCH == 0:
            producer.poll(0)
    deadline = time.monotonic() + 60
    while waiting[0] and time.monotonic() < deadline:
        producer.poll(0.1)


def send_lists(producer: Producer, told: Told, topic: str, count: int, quota: Quota) -> None:
    """Send lists of messages; with keys, those of each key go to its queue."""
    for first in range(0, count, BATCH):
        quota.wait(first)
        numbers = range(first, min(first + BATCH, count))
        bodies = [f"{told.name}:{number}" for number in numbers]
        messages = [
            Message(topic, body, sharding_key=keyed(told, number))
            for body, number in zip(bodies, numbers, strict=True)
        ]
        began = time.monotonic()
        try:
            outcomes: list[SendResult | RmqError] = list(producer.send_batch(topic, messages))
        except BatchSendError as error:
            outcomes = list(error.results)  # type: ignore[arg-type]
        except RmqError as error:
            outcomes = [error] * len(bodies)
        told.took(began, TIMEOUT_S)
        for body, outcome in zip(bodies, outcomes, strict=True):
            told.note(body, outcome)


def send_tasks(address: str, told: Told, topic: str, count: int, quota: Quota) -> None:
    """Send from tasks of an event loop that await each send."""
    numbers = iter(range(count))

    async def task(producer: aio.Producer) -> None:
        for number in numbers:
            while not quota.wait(number, timeout=0.0):  # noqa: ASYNC110 - threads allow more
                await asyncio.sleep(0.02)
            body = f"{told.name}:{number}"
            began = time.monotonic()
            try:
                told.note(body, await producer.send(topic, body))
            except RmqError as error:
                told.note(body, error)
            told.took(began, TIMEOUT_S)

    async def main() -> None:
        async with aio.Producer(name_server=address, send_timeout=TIMEOUT_S) as producer:
            await asyncio.gather(*(task(producer) for _ in range(50)))

    asyncio.run(main())
