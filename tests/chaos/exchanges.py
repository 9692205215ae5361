"""Loads of the chaos test that do more than store a message: transactions, and requests."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyrmq import (
    Producer,
    PullConsumer,
    ReceivedMessage,
    RmqError,
    SendResult,
    TransactionProducer,
    TransactionState,
)
from pyrmq.errors import RequestTimeout
from tests.chaos.loads import TIMEOUT_S, Quota, Told

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSACTIONS = "chaos-transactions"
REQUESTS = "chaos-requests"
REQUEST_S = 1.0


class Ends:
    """The ends of the local transactions.

    Attributes:
        committed: bodies that must appear, each once.
        never: bodies that must never appear.
    """

    def __init__(self) -> None:
        """Start without transactions."""
        self.committed: set[str] = set()
        self.never: set[str] = set()
        self._under_way: set[str] = set()

    def run(self, producer: TransactionProducer, told: Told, number: int) -> None:
        """Run one transaction: most commit, some roll back, some leave the end to the check."""
        body = f"{told.name}:{number}"
        self._under_way.add(body)

        def local(half: SendResult) -> TransactionState:
            del half
            if number % 7 == 0:
                return TransactionState.ROLLBACK
            self.committed.add(body)
            return TransactionState.UNKNOWN if number % 5 == 0 else TransactionState.COMMIT

        began = time.monotonic()
        try:
            producer.send_in_transaction(TRANSACTIONS, body, local, timeout=TIMEOUT_S)
        except RmqError as error:
            told.failed(error)
        told.took(began, TIMEOUT_S)
        if body not in self.committed:
            self.never.add(body)
        self._under_way.discard(body)

    def check(self, message: ReceivedMessage) -> TransactionState:
        """Answer a broker's check; a half message that is still being sent is undecided."""
        body = message.body.decode()
        if body in self.committed:
            return TransactionState.COMMIT
        return TransactionState.UNKNOWN if body in self._under_way else TransactionState.ROLLBACK


def send_transactions(
    producer: TransactionProducer, ends: Ends, told: Told, count: int, quota: Quota
) -> None:
    """Run one transaction after the other."""
    for number in range(count):
        quota.wait(number)
        ends.run(producer, told, number)


def send_requests(
    producer: Producer, answered: set[str], told: Told, count: int, quota: Quota
) -> None:
    """Send one request after the other."""
    for number in range(count):
        quota.wait(number)
        body = f"{told.name}:{number}"
        began = time.monotonic()
        try:
            reply = producer.request(REQUESTS, body, timeout=REQUEST_S)
        except RequestTimeout as error:
            told.failed(error)
            told.unknown.add(body)
        except RmqError as error:
            (told.unknown if told.failed(error) else told.refused).add(body)
        else:
            assert reply.body.decode() == f"re {body}", "the reply is that of another request"
            answered.add(body)
        told.took(began, REQUEST_S)


@contextmanager
def replies(address: str) -> Iterator[None]:
    """Answer requests while the block runs."""
    ended = threading.Event()
    with (
        PullConsumer(name_server=address, group="repliers", start="first") as consumer,
        Producer(name_server=address, send_timeout=REQUEST_S, retries=0) as producer,
    ):
        # Before any fault of the name servers: it would fail while they are silent.
        consumer.subscribe(REQUESTS)

        def run() -> None:
            while not ended.is_set():
                messages: list[ReceivedMessage] = []
                with suppress(RmqError):
                    messages = consumer.poll(timeout=0.1)
                for message in messages:
                    # The requester may not wait any more.
                    with suppress(RmqError):
                        producer.reply(message, f"re {message.body.decode()}")

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
