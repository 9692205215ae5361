"""Sends every flight exactly once, whatever happens to the broker.

The sender checks the outcome of every message of a batch. It resends messages that certainly were
not stored. It never blindly resends messages that may have been stored (the broker was killed
before it answered): once the broker is back, it reads the keys at the ends of the queues, after the
last acknowledged message, and resends only messages whose keys are missing. So no message is lost
or doubled. The report gives the number of messages that it looked up.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from examples.flights.data import Flight, Tally

from pyrmq import Admin, Message, Producer, PullConsumer, QueueId, RmqError, SendResult
from pyrmq.errors import BatchSendError

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES = 4
PAUSE_S = 0.2
PATIENCE_S = 60.0


@dataclass
class Counts:
    """Counts of the sender's work."""

    sent: int = 0
    acknowledged: int = 0
    unknown: int = 0
    found_stored: int = 0
    sent_again: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Sender:
    """A thread that sends all flights once; each is acknowledged or found stored.

    Args:
        name_server: address of the name server.
        topic: topic to send to.
        flights: flights to send.
        batch: messages of a batch.
    """

    name_server: str
    topic: str
    flights: Iterator[Flight]
    batch: int
    counts: Counts = field(default_factory=Counts)
    tally: Tally = field(default_factory=Tally)
    error: BaseException | None = None
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread still has flights to send."""
        return self._thread is not None and self._thread.is_alive()

    def create_topic(self) -> None:
        """Create the topic, so that Spark finds it before the first flight is sent."""
        with Admin(name_server=self.name_server) as admin:
            admin.create_topic(self.topic, queues=QUEUES)

    def stored(self) -> int:
        """Return how many messages the broker holds, from the bounds of its queues."""
        with PullConsumer(name_server=self.name_server, group="counter") as consumer:
            bounds = [consumer.bounds(queue) for queue in consumer.queues(self.topic)]
        return sum(highest - lowest for lowest, highest in bounds)

    def stop(self) -> None:
        """Stop sending."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            with Producer(name_server=self.name_server, group="flights") as producer:
                while batch := list(itertools.islice(self.flights, self.batch)):
                    if self._stop.is_set():
                        return
                    self.send(producer, batch)
                    for flight in batch:
                        self.tally.add(flight.month, flight.body)
                        self.counts.bytes += len(flight.body)
                    self.counts.seconds = time.monotonic() - begun
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.error = error

    def send(self, producer: Producer, batch: list[Flight]) -> None:
        """Send a batch until every message of it is stored once."""
        self.counts.sent += len(batch)
        left = batch
        deadline = time.monotonic() + PATIENCE_S
        while left and not self._stop.is_set():
            refused, unknown = self._attempt(producer, left)
            if unknown:
                self.counts.unknown += len(unknown)
                stored = self._stored(deadline)
                self.counts.found_stored += sum(flight.key in stored for flight in unknown)
                refused += [flight for flight in unknown if flight.key not in stored]
            again = {flight.key for flight in refused}
            left = [flight for flight in left if flight.key in again]
            if left:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(left)} messages could not be sent")
                self.counts.sent_again += len(left)
                time.sleep(PAUSE_S)

    def _attempt(
        self, producer: Producer, flights: list[Flight]
    ) -> tuple[list[Flight], list[Flight]]:
        """Send once; return the flights that certainly were not stored, and those that may be."""
        messages = [
            Message(
                self.topic,
                flight.body,
                keys=flight.key,
                tags=flight.carrier,
                sharding_key=flight.aircraft,
            )
            for flight in flights
        ]
        try:
            outcomes: list[object] = [*producer.send_batch(self.topic, messages)]
        except BatchSendError as error:
            outcomes = error.results
        except RmqError:
            return flights, []
        refused: list[Flight] = []
        unknown: list[Flight] = []
        for flight, outcome in zip(flights, outcomes, strict=True):
            if isinstance(outcome, SendResult):
                self.counts.acknowledged += 1
                place = (outcome.broker, outcome.queue_id)
                self.ends[place] = max(self.ends.get(place, 0), outcome.queue_offset + 1)
            else:
                (unknown if getattr(outcome, "may_exist", False) else refused).append(flight)
        return refused, unknown

    def _stored(self, deadline: float) -> set[str]:
        """Read the keys after the acknowledged messages, once the broker is back."""
        while True:
            try:
                with PullConsumer(name_server=self.name_server, group="resolver") as consumer:
                    return self._keys(consumer)
            except RmqError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_S)

    def _keys(self, consumer: PullConsumer) -> set[str]:
        ends = {queue: consumer.bounds(queue)[1] for queue in consumer.queues(self.topic)}
        begins = {queue: self.ends.get((queue.broker, queue.queue_id), 0) for queue in ends}
        left = sum(max(0, ends[queue] - begins[queue]) for queue in ends)
        keys: set[str] = set()
        if left:
            consumer.assign(begins)
        while left > 0:
            for message in consumer.poll(timeout=5.0):
                queue = QueueId(message.topic, message.broker, message.queue_id)
                if message.queue_offset < ends[queue]:
                    keys.update(message.keys)
                    left -= 1
        return keys
