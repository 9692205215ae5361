"""Orderly members that are killed or stopped: how long their locks hold, and what may overlap."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pyrmq import Admin, Producer, PullConsumer, QueueId
from pyrmq.testing import cluster
from tests.chaos.members import TOPIC, Handled, Log, Member, Members
from tests.chaos.test_consumers import Stored, judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(500)]

CALL_S = 0.06
"""Time of a call of a listener."""

PACE_S = 0.1
"""Between two messages of a queue: at any time one is likely to be at work somewhere."""

LOCK_S = 30.0
"""Brokers believe in the lock of a member that is silent for this time."""

STOPPED_S = 150.0
"""Brokers keep a connection that is silent for 120 s, and look each 10 s."""

Queue = tuple[str, int]


class Load:
    """Sends to each queue, slower than listeners handle it."""

    def __init__(self, producer: Producer, queues: list[QueueId]) -> None:
        """Start a thread."""
        self.stored: Stored = {}
        self._producer = producer
        self._queues = queues
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def end(self) -> Stored:
        """Return where everything is."""
        self._ended.set()
        self._thread.join()
        return self.stored

    def _send(self) -> None:
        number = 0
        while not self._ended.wait(PACE_S):
            for queue in self._queues:
                number += 1
                sent = self._producer.send(TOPIC, f"load:{number}", queue=queue)
                self.stored[f"load:{number}"] = [(sent.broker, sent.queue_id, sent.queue_offset)]


class Site(NamedTuple):
    """A group of two members that share the queues of two brokers while messages come.

    Attributes:
        members: of the group.
        load: what sends.
        settled: when both had their queues, on the clock of all processes.
    """

    members: Members
    load: Load
    settled: float

    def await_all(self) -> Stored:
        """End the load, and wait until the group has handled everything."""
        stored = self.load.end()
        until(lambda: len(self.members.places("queue")) == len(stored), 200)
        for member in self.members.running:
            assert member.leave() == 0
        return stored


@contextmanager
def two_members(directory: Path) -> Iterator[Site]:
    """Run two orderly members, each with half of the queues."""
    with (
        cluster(brokers=2, processes=True) as rocketmq,
        Producer(name_server=rocketmq.name_server) as producer,
    ):
        with Admin(name_server=rocketmq.name_server) as admin:
            admin.create_topic(TOPIC, queues=2)
        with PullConsumer(name_server=rocketmq.name_server, group="looks") as looker:
            queues = looker.queues(TOPIC)
        members = Members(rocketmq.name_server, directory)
        load = Load(producer, queues)
        try:
            for _ in range(2):
                members.join("queue", CALL_S)
            until(lambda: all(len(recent(one)) == 2 for one in members.running), 60)
            yield Site(members, load, time.monotonic())
        finally:
            load.end()
            members.end()


def calls_of(member: Member) -> list[Handled]:
    """Read a member's whole file."""
    return Log(member.path).more()


def recent(member: Member) -> set[Queue]:
    """Return the queues of the calls that a member has ended in the last second."""
    now = time.monotonic_ns()
    return {one.place[:2] for one in calls_of(member) if one.ended > now - 10**9}


def until(condition: object, seconds: float) -> None:
    """Wait for a condition."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def overlaps(calls: list[Handled]) -> list[tuple[Handled, Handled]]:
    """Return the calls that began in a queue before the one before had ended."""
    by_queue: dict[Queue, list[Handled]] = defaultdict(list)
    for one in sorted(calls, key=lambda one: one.began):
        by_queue[one.place[:2]].append(one)
    return [
        pair
        for chain in by_queue.values()
        for pair in pairwise(chain)
        if pair[1].began < pair[0].ended
    ]


def test_the_queues_of_an_orderly_member_that_is_killed_go_on_when_its_locks_have_expired(
    tmp_path: Path,
) -> None:
    with two_members(tmp_path) as site:
        killed, other = site.members.running
        queues = recent(killed)
        began = time.monotonic_ns()
        killed.kill()
        fault = (began / 1e9, time.monotonic())
        site.members.running.remove(killed)

        def taken_over() -> dict[Queue, int]:
            first: dict[Queue, int] = {}
            for one in calls_of(other):
                if one.began > began and one.place[:2] in queues:
                    first.setdefault(one.place[:2], one.began)
            return first

        until(lambda: taken_over().keys() == queues, LOCK_S + 30)
        took = (max(taken_over().values()) - began) / 1e9
        stored = site.await_all()
        calls = calls_of(killed) + calls_of(other)
    print(f"taken over after {took:.1f} s")  # noqa: T201 - shown by `make nightly`
    assert took <= LOCK_S + 1
    assert not overlaps(calls)
    judge("queue", calls, stored, [fault, (0.0, site.settled)])


def test_a_call_that_ran_when_its_process_was_stopped_is_all_that_overlaps(
    tmp_path: Path,
) -> None:
    with two_members(tmp_path) as site:
        stopped, other = site.members.running
        queues = recent(stopped)
        began = time.monotonic_ns()
        stopped.pause(STOPPED_S)
        resumed = time.monotonic_ns()
        meanwhile = {one.place[:2] for one in calls_of(other) if one.ended < resumed}
        assert queues <= meanwhile, "the other member goes on in all queues"
        until(lambda: any(one.began > resumed for one in calls_of(stopped)), 60)
        stored = site.await_all()
        calls = {stopped: calls_of(stopped), other: calls_of(other)}
    crossing = [one for one in calls[stopped] if one.ended - one.began > STOPPED_S * 0.9e9]
    print(f"{len(crossing)} calls were cut in two")  # noqa: T201 - as above
    assert max(Counter(one.place[:2] for one in crossing).values(), default=0) <= 1
    rest = [one for one in calls[stopped] + calls[other] if one not in crossing]
    assert not overlaps(rest)
    fault = (began / 1e9, resumed / 1e9)
    judge("queue", rest, stored, [fault, (0.0, site.settled)])
