"""Two brokers, two name servers, a network between: whatever happens to them, what is told is true.

`make chaos` sends a million messages; the default run some ten thousand. What must hold:

* every message is told of exactly once, within its time (and ``--chaos-slack-ms``);
* stored: it lies at the place that was told, once; more than once only where the result says
  ``may_be_duplicate`` (an earlier attempt went unanswered: Apache's client repeats it as well, and
  does not say so);
* not stored, and ``may_exist`` is not set: it lies nowhere; ``may_exist``: it may;
* messages with a key keep their order in their queue, and none of them is there twice.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer, PullConsumer, QueueId, RmqError
from tests.chaos import loads
from tests.chaos.loads import KEYS, TIMEOUT_S, Quota, Told
from tests.chaos.proxy import Network
from tests.chaos.script import play, steps
from tests.interop.ask import await_registered
from tests.interop.jvm import free_port
from tests.interop.ours import OurBroker, OurNameServer

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1500)]

TOPIC = "chaos"
OUTSIDE = "127.0.0.2"
"""Where the proxy stands for the servers: brokers register this address."""
INSIDE = {"bindAddress": "127.0.0.1"}
"""Where the servers themselves are."""

LOADS: list[tuple[str, Callable[..., None], bool, int]] = [
    ("each", loads.send_each, False, 5),
    ("each-keyed", loads.send_each, True, 5),
    ("futures", loads.send_futures, False, 15),
    ("futures-keyed", loads.send_futures, True, 15),
    ("produce", loads.produce, False, 20),
    ("produce-keyed", loads.produce, True, 20),
    ("lists", loads.send_lists, False, 15),
    ("tasks", loads.send_tasks, False, 5),
]
"""Name, manner, whether its messages have keys, per cent of all messages."""

Found = dict[QueueId, list[tuple[str, str]]]
"""Unique ids and bodies of each queue, in its order."""


def test_what_is_told_is_true_whatever_happens(request: pytest.FixtureRequest) -> None:
    total = int(request.config.getoption("--chaos-messages"))
    seed = int(request.config.getoption("--chaos-seed"))
    slack_s = int(request.config.getoption("--chaos-slack-ms")) / 1000
    print(f"seed {seed}, {total} messages")  # noqa: T201 - shown when it fails
    with ExitStack() as stack:
        names = [OurNameServer(properties=INSIDE) for _ in range(2)]
        routes = [
            (name, OUTSIDE, server.port, "127.0.0.1", server.port)
            for name, server in zip(("names-a", "names-b"), names, strict=True)
        ]
        direct = ";".join(server.address for server in names)
        address = ";".join(f"{OUTSIDE}:{server.port}" for server in names)
        brokers = [
            OurBroker(
                direct,
                name=name,
                port=free_port(),
                properties={
                    "bindAddress": "127.0.0.1",
                    "brokerIP1": OUTSIDE,
                    "registerNameServerPeriod": 10_000,
                },
            )
            for name in ("broker-a", "broker-b")
        ]
        routes += [(b.broker_name, OUTSIDE, b.port, "127.0.0.1", b.port) for b in brokers]
        servers = {
            name: server for (name, *_), server in zip(routes, [*names, *brokers], strict=True)
        }
        for server in servers.values():
            server.start()
            stack.callback(server.kill)
        for server in names:
            for broker in brokers:
                await_registered(server.address, broker.broker_name)
        network = stack.enter_context(Network(routes))
        with Admin(name_server=address) as admin:
            admin.create_topic(TOPIC, queues=2)
        chance = random.Random(seed)
        script = steps(chance, list(servers), total // 20_000 + 28)
        told = run_loads(
            stack, address, total, lambda allow: play(chance, script, servers, network, allow)
        )
        started = time.monotonic()
        found = drain_all(address)
        print(f"read again in {time.monotonic() - started:.1f} s")  # noqa: T201 - as above
    for one in told:
        print(  # noqa: T201 - as above
            f"{one.name}: {len(one.stored)} stored, {len(one.refused)} refused, "
            f"{len(one.unknown)} unknown, outlived its time by {one.over_s * 1000:.0f} ms at most, "
            f"{dict(one.errors)}"
        )
    judge(told, found, total)
    late = {one.name: one.over_s for one in told if one.over_s > slack_s}
    assert not late, f"calls outlived their time by more than {slack_s} s"


def run_loads(
    stack: ExitStack,
    address: str,
    total: int,
    script: Callable[[Callable[[int, int], None]], None],
) -> list[Told]:
    """Send everything while the script is played; what each load was told."""
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
    told, quotas, threads = [], [], []
    for at, (name, manner, ordered, share) in enumerate(LOADS):
        count, quota, one = total * share // 100, Quota(), Told(name, ordered)
        whom = address if manner is loads.send_tasks else producers[at // 2 % 2]
        threads.append(threading.Thread(target=manner, args=(whom, one, TOPIC, count, quota)))
        told.append(one)
        quotas.append((quota, count))

    def allow(step: int, of: int) -> None:
        for quota, count in quotas:
            quota.allow(count * step // of)

    for thread in threads:
        thread.start()
    try:
        script(allow)
    finally:
        # Also when the script failed: or the loads would wait for ever.
        allow(1, 1)
        for thread in threads:
            thread.join()
    return told


def drain_all(address: str) -> Found:
    """All messages of both brokers; one that has just come back is not in every route yet."""
    deadline = time.monotonic() + 60
    while True:
        with suppress(RmqError):
            found = drain(address)
            if {queue.broker for queue in found} == {"broker-a", "broker-b"}:
                return found
        assert time.monotonic() < deadline, "both brokers are to be found again"
        time.sleep(0.2)


def drain(address: str) -> Found:
    """All messages by queue, in its order."""
    found: Found = {}
    with PullConsumer(name_server=address, group=f"drain-{time.monotonic_ns()}") as consumer:
        queues = consumer.queues(TOPIC)
        ends = {queue: consumer.bounds(queue)[1] for queue in queues}
        consumer.assign(dict.fromkeys(queues, 0))
        deadline = time.monotonic() + 300
        while any(len(found.get(queue, [])) < ends[queue] for queue in queues):
            assert time.monotonic() < deadline, "the queues are not read in time"
            for message in consumer.poll(timeout=1.0):
                rows = found.setdefault(QueueId(TOPIC, message.broker, message.queue_id), [])
                assert message.queue_offset == len(rows)
                rows.append((message.message_id, message.body.decode()))
    return found


def judge(told: list[Told], found: Found, total: int) -> None:
    """Compare what was told with what is there."""
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
