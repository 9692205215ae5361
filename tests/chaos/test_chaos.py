"""Two brokers, two name servers and a network under faults: every reported outcome is true.

`make chaos` sends a million messages; the default run some ten thousand. What must hold:

* every message has one outcome, within its time (and ``--chaos-slack-ms``; the time in
  which this machine wakes its own threads too late is taken off, see ``watch.py``);
* stored: it lies at the reported place, once; more than once only where the result says
  ``may_be_duplicate`` (an earlier attempt went unanswered: Apache's client repeats it as well, and
  does not say so);
* not stored, and ``may_exist`` is not set: it lies nowhere; ``may_exist``: it may;
* a transaction that was committed appears once, whoever died when; others never;
* an answered request was stored, a refused one was not;
* messages with a key keep their order in their queue, and none of them is there twice.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

import pytest

from pyrmq import Admin, Producer, PullConsumer, QueueId, RmqError, TransactionProducer
from pyrmq.testing import cluster
from tests.chaos import loads
from tests.chaos.exchanges import (
    REQUESTS,
    TRANSACTIONS,
    Ends,
    replies,
    send_requests,
    send_transactions,
)
from tests.chaos.loads import KEYS, TIMEOUT_S, Quota, Told
from tests.chaos.script import play, steps
from tests.chaos.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq.testing import ClusterBroker, ClusterNameServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1500)]

TOPIC = "chaos"
OPTIONS: dict[str, Any] = {
    "transaction_time_out": 3000,
    "transaction_check_interval": 500,
    "transaction_check_max": 10_000,
}
"""A half message is checked soon after its send has certainly ended. The broker never gives up:
with the default of 15 checks it would after 7.5 s without an answer, which the script's faults can
take."""

LOADS: list[tuple[str, Callable[..., None], bool, int]] = [
    ("each", loads.send_each, False, 5),
    ("each-keyed", loads.send_each, True, 5),
    ("futures", loads.send_futures, False, 15),
    ("futures-keyed", loads.send_futures, True, 15),
    ("produce", loads.produce, False, 20),
    ("produce-keyed", loads.produce, True, 20),
    ("lists", loads.send_lists, False, 10),
    ("lists-keyed", loads.send_lists, True, 5),
    ("tasks", loads.send_tasks, False, 5),
]
"""Name, way of sending, whether its messages have keys, per cent of all messages."""

Found = dict[QueueId, list[tuple[str, str]]]
"""Unique ids and bodies of each queue, in order."""


def test_every_reported_outcome_is_true_whatever_happens(request: pytest.FixtureRequest) -> None:
    total = request.config.getoption("--chaos-messages") or 20_000
    seed = int(request.config.getoption("--chaos-seed"))
    slack_s = int(request.config.getoption("--chaos-slack-ms")) / 1000
    print(f"seed {seed}, {total} messages")  # noqa: T201 - shown when it fails
    with (
        cluster(brokers=2, name_servers=2, processes=True, faults=True, **OPTIONS) as rocketmq,
        Watch() as watch,
    ):
        address = rocketmq.name_server
        with Admin(name_server=address) as admin:
            for topic in (TOPIC, TRANSACTIONS, REQUESTS):
                admin.create_topic(topic, queues=2)
        servers: dict[str, ClusterBroker | ClusterNameServer] = {
            **{one.name: one for one in rocketmq.name_servers},
            **{one.name: one for one in rocketmq.brokers},
        }
        chance = random.Random(seed)
        script = steps(chance, list(servers), total // 20_000 + 32)
        loads = Loads(address, total)
        with loads:
            loads.run(lambda allow: play(chance, script, servers, allow))
            started = time.monotonic()
            found = drain_all(address, TOPIC)
            # The producers that answer checks are still open.
            await_ends(address, loads.ends.committed)
        transactions, requests = (drain_all(address, one) for one in (TRANSACTIONS, REQUESTS))
        print(f"read again in {time.monotonic() - started:.1f} s")  # noqa: T201 - as above
    late = report(loads.all, watch)
    judge(loads.told, found, total)
    judge_exchanges(loads, transactions, requests)
    too_late = {name: own for name, own in late.items() if own > slack_s}
    assert not too_late, f"calls outlived their time by more than {slack_s} s of their own"


class Loads:
    """Sends everything while a script plays, and records each load's outcomes."""

    def __init__(self, address: str, total: int) -> None:
        """Create the loads without sending."""
        self._stack = ExitStack()
        self._address = address
        self._total = total
        self.told: list[Told] = []
        self.transactions = Told("transactions")
        self.requests = Told("requests")
        self.ends = Ends()
        self.answered: set[str] = set()

    @property
    def all(self) -> list[Told]:
        """Return each load's outcomes."""
        return [*self.told, self.transactions, self.requests]

    def __enter__(self) -> Self:
        """Open the producers."""
        self._producers = [
            self._stack.enter_context(
                Producer(
                    name_server=self._address,
                    send_timeout=TIMEOUT_S,
                    latency_fault=tolerant,
                    start_detector=tolerant,
                )
            )
            for tolerant in (False, True)
        ]
        self._transacting = self._stack.enter_context(
            TransactionProducer(
                name_server=self._address,
                group="chaos",
                check=self.ends.check,
                topics=[TRANSACTIONS],
                send_timeout=TIMEOUT_S,
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self._stack.close()

    def run(self, script: Callable[[Callable[[int, int], None]], None]) -> None:
        """Send, and play the script meanwhile."""
        quotas, threads = [], []

        def load(manner: Callable[..., None], *arguments: object, share: int) -> None:
            count, quota = self._total * share // 100, Quota()
            threads.append(threading.Thread(target=manner, args=(*arguments, count, quota)))
            quotas.append((quota, count))

        for at, (name, manner, ordered, share) in enumerate(LOADS):
            one = Told(name, ordered)
            whom = self._address if manner is loads.send_tasks else self._producers[at // 2 % 2]
            load(manner, whom, one, TOPIC, share=share)
            self.told.append(one)
        load(send_transactions, self._transacting, self.ends, self.transactions, share=2)
        load(send_requests, self._producers[0], self.answered, self.requests, share=1)

        def allow(step: int, of: int) -> None:
            for quota, count in quotas:
                quota.allow(count * step // of)

        with replies(self._address):
            for thread in threads:
                thread.start()
            try:
                script(allow)
            finally:
                # Even if the script failed; otherwise the loads would wait for ever.
                allow(1, 1)
                for thread in threads:
                    thread.join()


def report(told: list[Told], watch: Watch) -> dict[str, float]:
    """Print the outcomes; return by how much each load's calls exceeded their timeouts."""
    late: dict[str, float] = {}
    for one in told:
        spans = [
            (end - due, end - due - watch.overdue(due, end, thread))
            for due, end, thread in one.late
        ]
        late[one.name] = max((own for _, own in spans), default=0.0)
        print(  # noqa: T201 - shown when it fails
            f"{one.name}: {len(one.stored)} stored, {len(one.refused)} refused, "
            f"{len(one.unknown)} unknown, outlived its time by "
            f"{max((whole for whole, _ in spans), default=0.0) * 1000:.0f} ms at most, of its own "
            f"by {late[one.name] * 1000:.0f} ms, {dict(one.errors)}"
        )
    print(f"a thread that only slept woke {watch.longest_s * 1000:.0f} ms late")  # noqa: T201 - as above
    return late


def await_ends(address: str, committed: set[str]) -> None:
    """Wait until every committed transaction has appeared."""
    deadline = time.monotonic() + 90
    while missing := committed - {
        body for rows in drain_all(address, TRANSACTIONS).values() for _, body in rows
    }:
        assert time.monotonic() < deadline, f"{len(missing)} are missing, {sorted(missing)[:5]}"
        time.sleep(0.5)


def judge_exchanges(load: Loads, transactions: Found, requests: Found) -> None:
    """Compare the ends of transactions, and the outcomes of requests, with the stored messages."""
    there = Counter(body for rows in transactions.values() for _, body in rows)
    assert len(load.ends.committed) > len(load.ends.never) // 2, "most got through"
    assert not [body for body in load.ends.never if there[body]], "what never was committed"
    twice = [body for body, count in there.items() if count > 1]
    assert not twice, f"a transaction appears once: {twice[:5]}"
    there = Counter(body for rows in requests.values() for _, body in rows)
    assert len(load.answered) > len(load.requests.unknown | load.requests.refused) // 2
    assert not [body for body in load.answered if not there[body]], "answered, so it was stored"
    assert not [body for body in load.requests.refused if there[body]], "refused is not there"


def drain_all(address: str, topic: str) -> Found:
    """Return all messages of both brokers; one that just came back is not in every route yet."""
    deadline = time.monotonic() + 60
    while True:
        with suppress(RmqError):
            found = drain(address, topic)
            if {queue.broker for queue in found} == {"broker-a", "broker-b"}:
                return found
        assert time.monotonic() < deadline, "both brokers are to be found again"
        time.sleep(0.2)


def drain(address: str, topic: str) -> Found:
    """Return all messages by queue, in order."""
    found: Found = {}
    with PullConsumer(name_server=address, group=f"drain-{time.monotonic_ns()}") as consumer:
        queues = consumer.queues(topic)
        ends = {queue: consumer.bounds(queue)[1] for queue in queues}
        consumer.assign(dict.fromkeys(queues, 0))
        deadline = time.monotonic() + 300
        while any(len(found.get(queue, [])) < ends[queue] for queue in queues):
            assert time.monotonic() < deadline, "the queues are not read in time"
            for message in consumer.poll(timeout=1.0):
                rows = found.setdefault(QueueId(topic, message.broker, message.queue_id), [])
                assert message.queue_offset == len(rows)
                rows.append((message.message_id, message.body.decode()))
    return found


def judge(told: list[Told], found: Found, total: int) -> None:
    """Compare the outcomes with the stored messages."""
    there = Counter(body for rows in found.values() for _, body in rows)
    at = {
        (queue.broker, queue.queue_id, offset): row
        for queue, rows in found.items()
        for offset, row in enumerate(rows)
    }
    for (_, _, _, share), one in zip(LOADS, told, strict=True):
        assert one.count == total * share // 100, f"{one.name}: some were not told of"
        assert not one.twice, f"{one.name}: told of twice"
        assert len(one.stored) > one.count // 2, f"{one.name}: most got through"
        for body, (place, unique, may_be_duplicate) in one.stored.items():
            assert at[place] == (unique, body), "it is where it was told to be"
            assert there[body] == 1 or (may_be_duplicate and not one.ordered), (
                f"{body} is there {there[body]} times"
            )
        assert not [body for body in one.refused if body in there], "what was refused is not there"
        if one.ordered:
            assert not [body for body in one.unknown if there[body] > 1], "repeated out of order"
    known: set[str] = set().union(*(one.stored.keys() | one.unknown for one in told))
    assert set(there) <= known, "nothing is there that nobody was told of"
    ordered = {one.name for one in told if one.ordered}
    for queue, rows in found.items():
        last: dict[tuple[str, int], int] = {}
        for _, body in rows:
            name, _, text = body.rpartition(":")
            if name in ordered:
                number = int(text)
                key = (name, number % KEYS)
                assert number > last.get(key, -1), f"{queue}: {body} is out of order"
                last[key] = number
