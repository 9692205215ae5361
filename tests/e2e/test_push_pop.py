"""Listeners of groups that pop: what is called, what comes again, switches of the mode."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_aio_push import until
from tests.e2e.test_consumer_options import ask
from tests.e2e.test_push import consume, make
from tests.e2e.wire import await_true

from pyrmq import (
    Admin,
    ConfigError,
    DeadLetter,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    ReconsumeLater,
    SimpleConsumer,
    aio,
)
from pyrmq.cli.main import main as cli
from pyrmq.codes import RequestCode
from pyrmq.errors import BrokerError, TopicNotFound

if TYPE_CHECKING:
    from typing import Literal

    from pyrmq.testing import Cluster


def switch(address: str, group: str, topic: str, mode: Literal["pop", "pull"]) -> None:
    """Set the mode on both brokers."""
    with Admin(name_server=address) as admin:
        assert admin.set_consume_mode(group, topic, mode) == ["broker-a", "broker-b"]


def popped(address: str, topic: str, bodies: list[str]) -> str:
    """Make a topic with messages and a group that pops it."""
    make(address, topic, bodies)
    group = f"pop-{topic}"
    switch(address, group, topic, "pop")
    return group


def queues_of(consumer: PushConsumer | aio.PushConsumer, topic: str) -> set[tuple[str, int]]:
    assigned = consumer.assignment()
    return {(queue.broker, queue.queue_id) for queue in assigned if queue.topic == topic}


ANY_QUEUE = {("broker-a", -1), ("broker-b", -1)}


def left(address: str, group: str, topic: str) -> list[bytes]:
    """Receive what the group has not acknowledged and no member has now."""
    with SimpleConsumer(name_server=address, group=group) as consumer:
        consumer.subscribe(topic)
        return [one.body for one in consumer.receive(32, wait=1.0)]


def test_members_share_every_queue_and_each_message_is_handled_once(
    address: str, topic: str
) -> None:
    bodies = [str(number) for number in range(300)]
    group = popped(address, topic, bodies)
    seen: Counter[str] = Counter()
    workers: set[str] = set()
    both = threading.Event()

    def handle(message: ReceivedMessage, name: str) -> None:
        assert message.topic == topic
        workers.add(name)
        if len(workers) == 2:
            both.set()
        # The first one to start must not handle everything before the second has begun.
        assert both.wait(20)
        seen[message.body.decode()] += 1

    members = [PushConsumer(name_server=address, group=group, threads=4) for _ in range(2)]
    for number, member in enumerate(members):
        member.subscribe(topic, partial(handle, name=str(number)))
    for member in members:
        member.start()
    await_true(lambda: len(seen) == 300, 30)
    assert [queues_of(member, topic) for member in members] == [ANY_QUEUE] * 2
    await_true(lambda: sum(member.stats()["done"] for member in members) == 300, 10)
    for member in members:
        member.close()
    assert set(seen.values()) == {1}
    assert workers == {"0", "1"}
    assert left(address, group, topic) == []


def test_members_pop_their_own_queues_and_their_neighbours(address: str, topic: str) -> None:
    """With a share each queue is popped by some members, and by none twice."""
    make(address, topic, [])
    group = f"share-{topic}"
    with Admin(name_server=address) as admin:
        admin.set_consume_mode(group, topic, "pop", share=1)
    seen: Counter[str] = Counter()
    members = [PushConsumer(name_server=address, group=group, rebalance=0.2) for _ in range(4)]
    for member in members:
        member.subscribe(topic, lambda body: seen.update([body.body.decode()]))
        member.start()

    def is_shared() -> bool:
        found = [queues_of(member, topic) for member in members]
        everything = {(broker, queue) for broker in ("broker-a", "broker-b") for queue in range(4)}
        return all(len(queues) == 4 for queues in found) and set().union(*found) == everything

    await_true(is_shared, 20)
    with Producer(name_server=address) as producer:
        for number in range(100):
            producer.send(topic, str(number))
    await_true(lambda: len(seen) == 100, 20)
    for member in members:
        member.close()
    assert set(seen.values()) == {1}
    assert left(address, group, topic) == []


def test_asyncio_pops_too(address: str, topic: str) -> None:
    group = popped(address, topic, [str(number) for number in range(100)])
    seen: Counter[str] = Counter()

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=address, group=group, tasks=8)

        @consumer.listener(topic)
        async def handle(body: str) -> None:
            await asyncio.sleep(0.001)
            seen[body] += 1

        async with consumer:
            await until(lambda: len(seen) == 100)
            assert queues_of(consumer, topic) == ANY_QUEUE

    asyncio.run(main())
    assert set(seen.values()) == {1}
    assert left(address, group, topic) == []


def test_a_list_is_of_one_queue_and_fails_together(address: str, topic: str) -> None:
    group = popped(address, topic, [str(number) for number in range(80)])
    calls: list[list[ReceivedMessage]] = []
    seen: Counter[bytes] = Counter()

    def handle(messages: list[ReceivedMessage]) -> None:
        calls.append(messages)
        if messages[0].reconsume_times == 0 and b"7" in {one.body for one in messages}:
            raise ReconsumeLater(delay_level=1)
        seen.update(one.body for one in messages)

    consume(address, group, topic, handle, lambda: len(seen) == 80, consume_batch=4)
    assert set(seen.values()) == {1}
    assert max(map(len, calls)) > 1
    for messages in calls:
        assert len({(one.broker, one.queue_id) for one in messages}) == 1


def test_what_fails_comes_again_and_becomes_a_dead_letter(address: str, topic: str) -> None:
    group = popped(address, topic, ["good", "fails", "never", "paused"])
    calls: dict[str, list[tuple[int, float]]] = {}

    def handle(message: ReceivedMessage) -> None:
        body = message.body.decode()
        calls.setdefault(body, []).append((message.reconsume_times, time.monotonic()))
        if body == "fails":
            raise ReconsumeLater(delay_level=1)
        if body == "never":
            raise DeadLetter("by request")
        if body == "paused" and message.reconsume_times == 0:
            raise ReconsumeLater(pause=0.3)

    consumer = PushConsumer(name_server=address, group=group, max_tries=1)
    consumer.subscribe(topic, handle)
    with consumer:
        await_true(lambda: consumer.stats()["dead"] == 2, 20)
        await_true(lambda: len(calls.get("paused", [])) == 2, 20)
        assert consumer.stats()["later"] == 2
    tries = {body: [tries for tries, _ in times] for body, times in calls.items()}
    assert tries == {"good": [0], "fails": [0, 1], "never": [0], "paused": [0, 1]}
    assert calls["fails"][1][1] - calls["fails"][0][1] >= 1.0
    with PullConsumer(name_server=address, group=f"undertaker-{group}") as looker:
        looker.subscribe(f"%DLQ%{group}")
        dead: set[bytes] = set()
        while len(dead) < 2:
            dead |= {one.body for one in looker.poll(8, timeout=10)}
    assert dead == {b"fails", b"never"}
    assert left(address, group, topic) == []


def test_a_long_call_keeps_its_message_and_one_past_its_limit_loses_it(
    address: str, topic: str
) -> None:
    group = popped(address, topic, ["long", "stuck"])
    calls: Counter[str] = Counter()
    release = threading.Event()
    done: list[str] = []

    def handle(body: str) -> None:
        calls[body] += 1
        if body == "stuck" and calls[body] == 1:
            release.wait(30)
        elif body == "long":
            time.sleep(3.0)
        done.append(body)

    consumer = PushConsumer(
        name_server=address, group=group, invisible=2.0, time_limit=5.0, threads=2
    )
    consumer.subscribe(topic, handle)
    with consumer:
        await_true(lambda: "long" in done, 15)
        await_true(lambda: consumer.stats()["timed_out"] == 1, 20)
        release.set()
        assert calls == {"long": 1, "stuck": 1}, "its time was renewed while it was at work"
    assert consumer.stats()["later"] == 1


def test_a_close_gives_back_what_was_not_begun(address: str, topic: str) -> None:
    """At once, and without counting a delivery."""
    group = popped(address, topic, [str(number) for number in range(40)])
    began, release = threading.Event(), threading.Event()
    handled: list[bytes] = []

    def handle(message: ReceivedMessage) -> None:
        began.set()
        release.wait(20)
        handled.append(message.body)

    consumer = PushConsumer(name_server=address, group=group, threads=1)
    consumer.subscribe(topic, handle)
    consumer.start()
    assert began.wait(20)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    # What another member gets now was given back: the call still runs.
    others: dict[bytes, int] = {}

    def look(message: ReceivedMessage) -> None:
        others[message.body] = message.reconsume_times

    consume(address, group, topic, look, lambda: len(others) == 39, threads=1)
    assert not handled
    release.set()
    closing.join(20)
    assert not closing.is_alive()
    assert set(others.values()) == {0}
    assert {*others, *handled} == {str(number).encode() for number in range(40)}
    assert left(address, group, topic) == []


def test_a_group_is_switched_while_its_members_run(address: str, topic: str) -> None:
    """From pull to pop and back: nothing is lost, also not what was popped and failed."""
    make(address, topic, [])
    group = f"switch-{topic}"
    seen: Counter[str] = Counter()
    failed: set[str] = set()

    def handle(message: ReceivedMessage) -> None:
        body = message.body.decode()
        assert message.topic == topic
        if body.endswith("0") and body not in failed:
            failed.add(body)
            raise ReconsumeLater(delay_level=1)
        seen[body] += 1

    def pops(member: PushConsumer) -> bool:
        return queues_of(member, topic) == ANY_QUEUE

    members = [
        PushConsumer(name_server=address, group=group, rebalance=0.2, invisible=5.0)
        for _ in range(2)
    ]
    for member in members:
        member.subscribe(topic, handle)
        member.start()
    sent = 0
    modes: list[Literal["pop", "pull"]] = ["pop", "pull", "pop", "pull"]
    with Producer(name_server=address) as producer:
        for mode in modes:
            switch(address, group, topic, mode)
            while not all(pops(one) == (mode == "pop") for one in members) or sent % 50:
                producer.send(topic, str(sent))
                sent += 1
                time.sleep(0.002)
    await_true(lambda: len(seen) == sent, 30)
    for member in members:
        member.close()
    assert set(seen) == {str(number) for number in range(sent)}


def test_a_member_that_dies_loses_nothing(address: str, topic: str) -> None:
    group = popped(address, topic, [str(number) for number in range(20)])
    program = f"""
import sys, time
from pyrmq import PushConsumer
consumer = PushConsumer(name_server={address!r}, group={group!r}, invisible=2.0, threads=4)
consumer.subscribe({topic!r}, lambda one: (print("began", flush=True), time.sleep(60)))
consumer.start()
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        # Several threads begin, and print at the same time.
        assert child.stdout.readline().startswith(b"began")
        child.kill()
    seen: Counter[str] = Counter()
    consume(
        address, group, topic, lambda one: seen.update([one.body.decode()]), lambda: len(seen) == 20
    )
    assert set(seen.values()) == {1}


def test_operators_are_shown_what_a_member_pops(shared: Cluster, address: str, topic: str) -> None:
    group = popped(address, topic, ["x"])
    began, release = threading.Event(), threading.Event()

    def handle(_: ReceivedMessage) -> None:
        began.set()
        release.wait(30)

    consumer = PushConsumer(name_server=address, group=group)
    consumer.subscribe(topic, handle)
    with consumer:
        assert began.wait(20)
        assert consumer.stats()["in_flight"] == 1
        client_id = consumer._control.client_id()
        fields = {"consumerGroup": group, "clientId": client_id}
        info = ask(shared, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        release.set()
    rows = {dict(name)["brokerName"]: (dict(name), row) for name, row in info["mqPopTable"].items()}
    assert {name["queueId"] for name, _ in rows.values()} == {-1}
    assert sum(row["waitAckCount"] for _, row in rows.values()) == 1
    assert all(abs(row["lastPopTimestamp"] / 1000 - time.time()) < 60 for _, row in rows.values())
    assert not [name for name in info["mqTable"] if dict(name)["topic"] == topic]


def test_an_order_and_client_rebalance_pull(address: str, topic: str) -> None:
    group = popped(address, topic, [])
    for options in ({"order": "queue"}, {"order": "key"}, {"client_rebalance": True}):
        consumer = PushConsumer(name_server=address, group=group, **options)
        consumer.subscribe(topic, print)
        with consumer:
            await_true(lambda one=consumer: len(queues_of(one, topic)) == 8)
            assert ("broker-a", -1) not in queues_of(consumer, topic)
    with pytest.raises(ConfigError, match="invisible"):
        PushConsumer(name_server=address, group=group, invisible=0.5)


def test_the_mode_is_set_shown_and_wrong_ones_are_refused(
    address: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(address, topic, [])
    with Admin(name_server=address) as admin:
        assert {one.mode for one in admin.consume_modes("kitchen", topic).values()} == {None}
        with pytest.raises(ConfigError, match="'push'"):
            admin.set_consume_mode("kitchen", topic, "push")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="-2"):
            admin.set_consume_mode("kitchen", topic, "pop", share=-2)
        with pytest.raises(TopicNotFound):
            admin.set_consume_mode("kitchen", "no-topic", "pop")
        with pytest.raises(BrokerError, match="a b"):
            admin.set_consume_mode("a b", topic, "pop")
    words = ["--share", "3", "--name-server", address]
    assert cli(["group", "mode", "kitchen", topic, "pop", *words]) == 0
    assert cli(["group", "mode", "kitchen", topic, *words]) != 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["kitchen", topic, broker, "pop", "3"] for broker in ("broker-a", "broker-b")
    ]
    with Admin(name_server=address) as admin:
        assert {one.mode for one in admin.consume_modes("kitchen", topic).values()} == {"pop"}
