"""The producer while brokers and name servers are killed and stopped: nothing told is untrue."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest
from tests.interop.ours import OurBroker, OurNameServer

from pyrmq import Admin, Producer, PullConsumer, QueueId, RmqError, SendResult
from pyrmq.errors import NameServerUnreachable

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC = "chaos"
TIMEOUT_S = 3.0
SECONDS = 15.0


@dataclass
class Told:
    """What a load was told of each of its messages.

    Attributes:
        stored: body to result.
        refused: bodies that certainly are not stored.
        unknown: bodies that may be.
        longest_s: the longest call.
    """

    stored: dict[str, SendResult] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    longest_s: float = 0.0

    def note(self, body: str, error: BaseException | None, result: SendResult | None) -> None:
        """Keep one outcome; there must be one of both."""
        if result is not None:
            self.stored[body] = result
            return
        assert isinstance(error, RmqError), f"{body}: {error!r}"
        (self.unknown if getattr(error, "may_exist", False) else self.refused).add(body)


def sync_load(producer: Producer, told: Told, name: str, stop: threading.Event) -> None:
    """One send after the other."""
    number = 0
    while not stop.is_set():
        body = f"{name}-{number}"
        number += 1
        began = time.monotonic()
        try:
            told.note(body, None, producer.send(TOPIC, body))
        except RmqError as error:
            told.note(body, error, None)
        told.longest_s = max(told.longest_s, time.monotonic() - began)


def produce_load(producer: Producer, told: Told, name: str, stop: threading.Event) -> None:
    """Keyed messages with a callback each, at a rate that leaves the servers time to come back."""
    number = 0
    while not stop.is_set():
        body = f"{name}-{number}"
        key = f"{name}-{number % 5}"
        number += 1
        try:
            producer.produce(
                TOPIC,
                body,
                lambda error, result, body=body: told.note(body, error, result),  # type: ignore[misc]
                sharding_key=key if number % 2 else None,
                keys=key,
            )
        except RmqError as error:
            told.note(body, error, None)
        if number % 20 == 0:
            producer.poll(0.005)


def chaos(seed: int, brokers: list[OurBroker], names: list[OurNameServer]) -> None:
    """Kill, stop and bring back, one thing at a time."""
    chance = random.Random(seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        victim = chance.choice([*brokers, *brokers, *names])
        if chance.random() < 0.5:
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(chance.uniform(0.1, 1.5))
            os.kill(victim.pid, signal.SIGCONT)
        else:
            victim.kill()
            time.sleep(chance.uniform(0.0, 0.5))
            victim.start()
        time.sleep(chance.uniform(0.2, 1.0))


def drain(address: str) -> dict[QueueId, list[tuple[str, str, str]]]:
    """All messages by queue: unique id, body, keys; in the order of the queue."""
    found: dict[QueueId, list[tuple[str, str, str]]] = {}
    with PullConsumer(name_server=address, group=f"drain-{time.monotonic_ns()}") as consumer:
        queues = consumer.queues(TOPIC)
        ends = {queue: consumer.bounds(queue)[1] for queue in queues}
        consumer.assign(dict.fromkeys(queues, 0))
        deadline = time.monotonic() + 60
        while any(len(found.get(queue, [])) < ends[queue] for queue in queues):
            assert time.monotonic() < deadline, "the queues are not read in time"
            for message in consumer.poll(timeout=1.0):
                place = QueueId(TOPIC, message.broker, message.queue_id)
                row = (message.message_id, message.body.decode(), " ".join(message.keys))
                assert message.queue_offset == len(found.setdefault(place, []))
                found[place].append(row)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_told_is_true_whoever_dies(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown when it fails
    with ExitStack() as stack:
        names = [OurNameServer() for _ in range(2)]
        for server in names:
            server.start()
            stack.callback(server.kill)
        address = ";".join(server.address for server in names)
        brokers = [OurBroker(address, name=name) for name in ("broker-a", "broker-b")]
        for broker in brokers:
            broker.start()
            stack.callback(broker.kill)
        with Admin(name_server=address) as admin:
            admin.create_topic(TOPIC, queues=2)
        told = [Told() for _ in range(4)]
        stop = threading.Event()
        producers = [
            stack.enter_context(
                Producer(
                    name_server=address,
                    send_timeout=TIMEOUT_S,
                    latency_fault=tolerant,
                    start_detector=tolerant,
                )
            )
            for tolerant in (False, True)
        ]
        loads = [
            threading.Thread(target=load, args=(producers[at % 2], told[at], f"load{at}", stop))
            for at, load in enumerate([sync_load, sync_load, produce_load, produce_load])
        ]
        for thread in loads:
            thread.start()
        try:
            chaos(seed, brokers, names)
        finally:
            stop.set()
            for thread in loads:
                thread.join()
        for producer in producers:
            assert producer.flush(30), "every message is told of"
        found: dict[QueueId, list[tuple[str, str, str]]] = {}
        for _ in range(20):
            # A broker that has just come back is not in every route yet.
            with suppress(RmqError, NameServerUnreachable):
                found = drain(address)
                if {queue.broker for queue in found} == {"broker-a", "broker-b"}:
                    break
            time.sleep(0.5)
        judge(told, found)


def judge(told: list[Told], found: dict[QueueId, list[tuple[str, str, str]]]) -> None:
    """Compare what was told with what is there."""
    bodies = Counter(body for rows in found.values() for _, body, _ in rows)
    by_place = {
        (queue.broker, queue.queue_id, offset): row
        for queue, rows in found.items()
        for offset, row in enumerate(rows)
    }
    assert sum(len(one.stored) for one in told) > 1000, "something was sent"
    for one in told:
        for body, result in one.stored.items():
            place = (result.broker, result.queue_id, result.queue_offset)
            assert by_place[place][:2] == (result.message_id, body)
            assert bodies[body] == 1 or result.may_be_duplicate, (
                f"{body} is there {bodies[body]} times"
            )
        assert not [body for body in one.refused if body in bodies], "what was refused is not there"
        # Two seconds for a machine that has other work.
        assert one.longest_s < TIMEOUT_S + 2
    known = set().union(*(one.stored.keys() | one.unknown for one in told))
    assert set(bodies) <= known, "nothing is there that nobody was told of"
    for queue, rows in found.items():
        last: dict[str, int] = {}
        for _, body, key in rows:
            load, number = body.rsplit("-", 1)
            if not key or int(number) % 2:
                continue
            assert int(number) > last.get(f"{load}{key}", -1), f"{queue}: {key} is out of order"
            last[f"{load}{key}"] = int(number)
