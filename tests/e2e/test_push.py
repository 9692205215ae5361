"""The consumer that calls listeners: what is called, in which order, and what is committed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import Connection, await_true

from pyrmq import (
    Admin,
    ClosedError,
    ConfigError,
    ConsumeResult,
    DeadLetter,
    Producer,
    PullConsumer,
    PushConsumer,
    QueueId,
    ReceivedMessage,
    ReconsumeLater,
    TopicNotFound,
)
from pyrmq.codes import RequestCode
from pyrmq.errors import CommitError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq.testing import Cluster


def make(address: str, topic: str, bodies: list[str], *, queues: int = 4) -> None:
    """Make a topic on both brokers and send to all of its queues in turn."""
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=queues)
    with Producer(name_server=address) as producer:
        for body in bodies:
            producer.send(topic, body)


def consume(
    address: str,
    group: str,
    topic: str,
    listener: Callable[[Any], object],
    until: Callable[[], bool],
    **options: object,
) -> None:
    """Run a consumer until something holds."""
    consumer = PushConsumer(name_server=address, group=group, **options)  # type: ignore[arg-type]
    consumer.subscribe(topic, listener)
    with consumer:
        await_true(until, 30)


def committed(address: str, group: str, topic: str) -> dict[QueueId, int | None]:
    """Ask how far a group has come, without joining it."""
    with PullConsumer(name_server=address, group=group, auto_commit=None) as looker:
        return {queue: looker.committed(queue) for queue in looker.queues(topic)}


@pytest.mark.parametrize("order", ["none", "key", "queue"])
def test_each_message_is_handled_once_and_committed(address: str, topic: str, order: str) -> None:
    bodies = [str(number) for number in range(500)]
    make(address, topic, bodies)
    seen: Counter[bytes] = Counter()
    group = f"push-{topic}"
    consume(
        address,
        group,
        topic,
        lambda one: seen.update([one.body]),
        lambda: len(seen) == 500,
        order=order,
    )
    assert seen == Counter(body.encode() for body in bodies)
    assert sum(offset or 0 for offset in committed(address, group, topic).values()) == 500
    consume(address, group, topic, lambda one: seen.update([one.body]), lambda: True, order=order)
    assert max(seen.values()) == 1, "a group begins where it has committed"


def test_a_slow_call_holds_back_the_commit_of_its_queue_only(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group="looks", auto_commit=None) as looker:
        queues = looker.queues(topic)
    with Producer(name_server=address) as producer:
        for queue in queues:
            for number in range(10):
                producer.send(topic, f"{queue.broker}/{number}", queue=queue)
    blocked, release, seen = threading.Event(), threading.Event(), set()

    def listener(body: str) -> None:
        if body == f"{queues[0].broker}/3":
            blocked.set()
            release.wait(20)
        seen.add(body)

    group = f"push-{topic}"
    consumer = PushConsumer(name_server=address, group=group)
    consumer.subscribe(topic, listener)
    with consumer:
        assert blocked.wait(10)
        await_true(lambda: len(seen) == 19, 10)
        wanted = {queues[0]: 3, queues[1]: 10}
        await_true(lambda: can_commit(consumer) and committed(address, group, topic) == wanted, 10)
        assert consumer.stats()["in_flight"] == 1
        release.set()
    assert committed(address, group, topic) == {queues[0]: 10, queues[1]: 10}


def test_a_message_whose_call_fails_comes_again_and_ends_as_a_dead_letter(
    address: str, topic: str
) -> None:
    make(address, topic, ["poison", "good"])
    tries: dict[str, list[ReceivedMessage]] = defaultdict(list)

    def listener(message: ReceivedMessage) -> None:
        body = message.body.decode()
        tries[body].append(message)
        if body == "poison":
            raise ReconsumeLater(delay_level=1)

    group = f"push-{topic}"
    consume(address, group, topic, listener, lambda: len(tries["poison"]) == 3, max_tries=2)
    first, *again = tries["poison"]
    assert [one.reconsume_times for one in tries["poison"]] == [0, 1, 2]
    for one in again:
        assert (one.topic, one.message_id) == (topic, first.message_id)
    assert len(tries["good"]) == 1, "other messages go on"
    with PullConsumer(name_server=address, group="looks") as looker:
        await_true(lambda: bool(looker.queues(f"%DLQ%{group}")), 10)
        looker.subscribe(f"%DLQ%{group}")
        (dead,) = looker.poll(timeout=10)
    assert (dead.body, dead.message_id) == (b"poison", first.message_id)


def test_a_dead_letter_goes_at_once(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, ["no such customer"])
    calls = []

    def listener(message: ReceivedMessage) -> None:
        calls.append(message)
        raise DeadLetter("the customer is unknown")

    group = f"push-{topic}"
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"):
        consume(address, group, topic, listener, lambda: bool(calls))
    assert "the customer is unknown" in caplog.text
    with PullConsumer(name_server=address, group="looks") as looker:
        looker.subscribe(f"%DLQ%{group}")
        (dead,) = looker.poll(timeout=10)
    assert dead.body == b"no such customer"


@pytest.mark.parametrize("order", ["key", "queue"])
def test_an_order_is_kept_over_a_failure(address: str, topic: str, order: str) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=2)
    with Producer(name_server=address) as producer:
        for number in range(200):
            key = f"customer-{number % 5}"
            producer.send(topic, f"{key}/{number}", sharding_key=key)
    handled: dict[str, list[int]] = defaultdict(list)
    running: Counter[str] = Counter()
    failed: set[str] = set()
    overlaps = []

    def listener(message: ReceivedMessage) -> ConsumeResult | None:
        key, number = message.body.decode().split("/")
        place = key if order == "key" else f"{message.broker}/{message.queue_id}"
        running[place] += 1
        if running[place] > 1:
            overlaps.append(message)
        time.sleep(0.001)
        running[place] -= 1
        if int(number) % 20 == 7 and message.body.decode() not in failed:
            failed.add(message.body.decode())
            return ConsumeResult.RECONSUME_LATER
        handled[key].append(int(number))
        return None

    consume(
        address,
        f"push-{topic}",
        topic,
        listener,
        lambda: sum(map(len, handled.values())) == 200,
        order=order,
        suspend_pause=0.05,
    )
    assert not overlaps
    assert len(failed) == 10
    for numbers in handled.values():
        assert numbers == sorted(numbers)


def test_keys_of_one_queue_go_side_by_side(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=1)
    with PullConsumer(name_server=address, group="looks", auto_commit=None) as looker:
        queue = looker.queues(topic)[0]
    with Producer(name_server=address) as producer:
        producer.send(topic, "slow", sharding_key="a", queue=queue)
        producer.send(topic, "after slow", sharding_key="a", queue=queue)
        producer.send(topic, "quick", sharding_key="b", queue=queue)
    release, seen = threading.Event(), []

    def listener(body: str) -> None:
        if body == "slow":
            release.wait(20)
        seen.append(body)

    consumer = PushConsumer(name_server=address, group=f"push-{topic}", order="key")
    consumer.subscribe(topic, listener)
    with consumer:
        await_true(lambda: seen == ["quick"], 10)
        release.set()
        await_true(lambda: len(seen) == 3, 10)
    assert seen == ["quick", "slow", "after slow"]


def test_a_call_past_its_time_limit_gives_its_message_to_others(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, [str(number) for number in range(50)], queues=1)
    release, calls = threading.Event(), Counter[str]()
    seen: set[str] = set()

    def hangs_at_first(body: str) -> None:
        calls[body] += 1
        if body == "7" and calls[body] == 1:
            release.wait(30)
        seen.add(body)

    consumer = PushConsumer(name_server=address, group=f"push-{topic}", threads=1, time_limit=1.0)
    consumer.subscribe(topic, hangs_at_first)
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"), consumer:
        await_true(lambda: len(seen) == 49, 15)
        assert "7" not in seen
        # A busy machine may hold up another call for as long.
        assert consumer.stats()["timed_out"] >= 1
        release.set()
    assert "hangs_at_first" in caplog.text, "its stack is in the log"


@pytest.mark.parametrize("late", [None, DeadLetter("too late")], ids=["success", "dead"])
def test_the_outcome_of_a_call_past_its_time_limit_is_ignored(
    address: str, topic: str, late: DeadLetter | None
) -> None:
    make(address, topic, ["x"], queues=1)
    group, calls = f"push-{topic}", list[str]()
    release, returns, go_on = threading.Event(), threading.Event(), threading.Event()

    def listener(body: str) -> None:
        calls.append(body)
        if len(calls) > 1:
            go_on.wait(20)
            return
        release.wait(20)
        returns.set()
        if late is not None:
            raise late

    def position() -> int:
        consumer.commit()
        return sum(offset or 0 for offset in committed(address, group, topic).values())

    # More threads than calls that a busy machine lets pass the limit.
    consumer = PushConsumer(
        name_server=address,
        group=group,
        threads=8,
        order="key",
        time_limit=0.5,
        suspend_pause=0.05,
    )
    consumer.subscribe(topic, listener)
    with consumer:
        await_true(lambda: len(calls) > 1, 10)
        release.set()
        assert returns.wait(10)
        # What the call says would be counted in far less.
        time.sleep(0.2)
        assert (consumer.stats().done, consumer.stats().dead, position()) == (0, 0, 0)
        go_on.set()
        await_true(lambda: consumer.stats().done == 1, 10)
        assert (consumer.stats().dead, position()) == (0, 1)


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt(), RuntimeError("no")])
def test_whatever_a_listener_raises_ends_nothing(
    address: str, topic: str, end: BaseException
) -> None:
    make(address, topic, [str(number) for number in range(20)])
    seen: set[str] = set()
    raised: list[str] = []

    def listener(body: str) -> None:
        if body == "5" and not raised:
            raised.append(body)
            raise end
        seen.add(body)

    consume(address, f"push-{topic}", topic, listener, lambda: len(seen) == 19, threads=1)


def test_nonsense_that_a_listener_returns_is_told_and_its_message_comes_again(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, ["x"])
    calls = []

    def listener(body: str) -> str | None:
        calls.append(body)
        return "fine" if len(calls) == 1 else None

    # An order pauses for less than the 10 s of a first retry.
    consumer = PushConsumer(
        name_server=address, group=f"push-{topic}", order="key", suspend_pause=0.05
    )
    consumer.subscribe(topic, listener)
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"), consumer:
        await_true(lambda: consumer.stats().done == 1, 10)
        assert consumer.stats().later == 1
    assert calls == ["x", "x"]
    assert "a listener returned 'fine'" in caplog.text


@dataclass
class Order:
    """A body."""

    id: int
    what: str


def test_bodies_are_decoded_as_the_annotation_asks(address: str, topic: str) -> None:
    make(address, topic, ['{"id": 7, "what": "tea"}'])
    seen: list[object] = []

    def text(body: str) -> None:
        seen.append(body)

    def fields(body: dict[str, object]) -> None:
        seen.append(body)

    def instance(body: Order) -> None:
        seen.append(body)

    for number, listener in enumerate([text, fields, instance]):
        group = f"push-{topic}-{number}"
        consume(address, group, topic, listener, lambda wanted=number: len(seen) > wanted)  # type: ignore[arg-type, misc]
    assert seen == ['{"id": 7, "what": "tea"}', {"id": 7, "what": "tea"}, Order(7, "tea")]


def test_a_body_that_does_not_fit_is_a_dead_letter(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, ["not json"])
    group = f"push-{topic}"

    def listener(body: Order) -> None:
        raise AssertionError(body)

    consumer = PushConsumer(name_server=address, group=group)
    consumer.subscribe(topic, listener)
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"), consumer:
        await_true(lambda: consumer.stats()["dead"] == 1, 10)
    assert "does not fit the listener's annotation" in caplog.text
    with PullConsumer(name_server=address, group="looks") as looker:
        looker.subscribe(f"%DLQ%{group}")
        assert [one.body for one in looker.poll(timeout=10)] == [b"not json"]


def test_lists_of_messages(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(100)], queues=1)
    sizes: list[int] = []
    seen: Counter[str] = Counter()

    def listener(bodies: list[str]) -> None:
        sizes.append(len(bodies))
        seen.update(bodies)

    consume(
        address,
        f"push-{topic}",
        topic,
        listener,
        lambda: len(seen) == 100,
        consume_batch=16,
        threads=2,
    )
    assert max(sizes) <= 16
    assert set(seen.values()) == {1}


def test_members_of_a_group_share_the_queues_and_a_closed_one_leaves_none_behind(
    address: str, topic: str
) -> None:
    make(address, topic, [])
    seen: Counter[str] = Counter()
    members = [PushConsumer(name_server=address, group=f"push-{topic}") for _ in range(2)]
    for member in members:
        member.subscribe(topic, lambda one: seen.update([one.body.decode()]))
        member.start()

    def shares() -> list[int]:
        return [sum(queue.topic == topic for queue in member.assignment()) for member in members]

    await_true(lambda: shares() == [4, 4], 10)
    members[0].close()
    began = time.monotonic()
    await_true(lambda: shares_of(members[1], topic) == 8, 10)
    with Producer(name_server=address) as producer:
        for number in range(80):
            producer.send(topic, str(number))
    await_true(lambda: len(seen) == 80, 10)
    members[1].close()
    assert set(seen.values()) == {1}
    assert time.monotonic() - began < 10


def shares_of(member: PushConsumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in member.assignment())


def test_one_orderly_member_at_a_time_has_a_queue(address: str, topic: str) -> None:
    """A second member comes while calls run: it waits for the locks of the first."""
    make(address, topic, [str(number) for number in range(400)], queues=2)
    running: Counter[str] = Counter()
    overlaps, seen = [], Counter[str]()

    def listener(message: ReceivedMessage) -> None:
        place = f"{message.broker}/{message.queue_id}"
        running[place] += 1
        if running[place] > 1:
            overlaps.append(place)
        time.sleep(0.002)
        running[place] -= 1
        seen[message.body.decode()] += 1

    members = [
        PushConsumer(name_server=address, group=f"push-{topic}", order="queue", threads=4)
        for _ in range(2)
    ]
    for member in members:
        member.subscribe(topic, listener)
        member.start()
        await_true(lambda: len(seen) > 20, 10)
    await_true(lambda: len(seen) == 400, 20)
    await_true(lambda: [shares_of(member, topic) for member in members] == [2, 2], 10)
    for member in members:
        member.close()
    assert not overlaps
    assert set(seen.values()) == {1}, "nothing came twice"


def test_an_orderly_member_that_closes_frees_its_queues_at_once(address: str, topic: str) -> None:
    make(address, topic, ["a"], queues=1)
    seen: list[str] = []
    for wanted in (2, 3):
        member = PushConsumer(name_server=address, group=f"push-{topic}", order="queue")
        member.subscribe(topic, lambda one: seen.append(one.body.decode()))
        with member:
            with Producer(name_server=address) as producer:
                producer.send(topic, "b")
            await_true(lambda wanted=wanted: len(seen) == wanted, 15)


def test_a_broker_that_is_killed_and_starts_again_loses_nothing() -> None:
    with cluster(brokers=2, processes=True) as running:
        address, topic = running.name_server, "restarted"
        make(address, topic, [], queues=2)
        seen: Counter[str] = Counter()
        consumer = PushConsumer(name_server=address, group="g", commit_interval=0.2)
        consumer.subscribe(topic, lambda one: seen.update([one.body.decode()]))
        sent = []
        with consumer, Producer(name_server=address, retries=10, send_timeout=10) as producer:
            for number in range(300):
                producer.send(topic, str(number))
                sent.append(str(number))
                if number == 100:
                    running.brokers[0].kill()
                if number == 200:
                    running.brokers[0].start()
            await_true(lambda: len(seen) == 300 and can_commit(consumer), 30)
        assert set(seen) == set(sent)


def can_commit(consumer: PushConsumer) -> bool:
    """Commit; False while a broker does not answer."""
    try:
        consumer.commit()
    except CommitError:
        return False
    return True


RUN = """
import sys, time
from pyrmq import PushConsumer
consumer = PushConsumer(name_server=sys.argv[1], group="run")
@consumer.listener(sys.argv[2])
def handle(body: str) -> None:
    print("begin", body, flush=True)
    time.sleep(0.5)
    print("end", body, flush=True)
consumer.run(grace=10)
print("left", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_by_a_signal_when_its_calls_have_ended(
    address: str, topic: str, number: signal.Signals
) -> None:
    make(address, topic, ["x"], queues=1)
    with subprocess.Popen(
        [sys.executable, "-c", RUN, address, topic], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin x\n"
        process.send_signal(number)
        assert process.stdout.read() == "end x\nleft\n"
        assert process.wait(10) == 0
    assert sum(offset or 0 for offset in committed(address, "run", topic).values()) == 1


def test_a_killed_member_is_replaced(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(40)], queues=1)
    seen: set[str] = set()
    with subprocess.Popen(
        [sys.executable, "-c", RUN, address, topic], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("begin")
        consumer = PushConsumer(name_server=address, group="run")
        consumer.subscribe(topic, lambda one: seen.add(one.body.decode()))
        with consumer:
            os.kill(process.pid, signal.SIGKILL)
            await_true(lambda: shares_of(consumer, topic) == 2, 10)
            await_true(lambda: len(seen) >= 30, 20)


def test_what_cannot_work_is_refused(address: str, topic: str) -> None:
    consumer = PushConsumer(name_server=address, group="g")
    with pytest.raises(ConfigError, match="no topic is subscribed"):
        consumer.start()

    async def later(body: bytes) -> None: ...

    def two(one: bytes, other: bytes) -> None: ...

    def odd(one: complex) -> None: ...

    def unknown(one: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match="outside `if TYPE_CHECKING`"):
        consumer.subscribe(topic, unknown)
    with pytest.raises(ConfigError, match="coroutine"):
        consumer.subscribe(topic, later)
    with pytest.raises(ConfigError, match="must take one argument"):
        consumer.subscribe(topic, two)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expects <class 'complex'>"):
        consumer.subscribe(topic, odd)
    with pytest.raises(ConfigError, match="give `tags` or `sql`, not both"):
        consumer.subscribe(topic, print, tags="new", sql="a > 5")
    consumer.subscribe(topic, print)
    with pytest.raises(ConfigError, match="has a listener already"):
        consumer.subscribe(topic, print)
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.start()
    for wrong in ({"order": "some"}, {"threads": 0}, {"time_limit": 0}, {"max_tries": 0}):
        with pytest.raises(ConfigError):
            PushConsumer(name_server=address, group="g", **wrong)


@pytest.mark.parametrize("order", ["none", "key", "queue"])
def test_a_reset_of_the_group_is_seen_at_once(
    shared: Cluster, address: str, topic: str, order: str
) -> None:
    """The buffer and outcomes of before are dropped, and no older position is committed."""
    make(address, topic, [str(number) for number in range(40)], queues=2)
    seen: Counter[str] = Counter()
    group = f"push-{topic}"
    consumer = PushConsumer(name_server=address, group=group, order=order)  # type: ignore[arg-type]
    consumer.subscribe(topic, lambda one: seen.update([one.body.decode()]))
    with consumer:
        await_true(lambda: len(seen) == 40, 10)
        consumer.commit()
        for broker in shared.brokers:
            fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
            with Connection(broker.address) as connection:
                answer = connection.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
                assert answer.code == 0, answer.remark
        await_true(lambda: set(seen.values()) == {2}, 15)
        consumer.commit()
    assert sum(offset or 0 for offset in committed(address, group, topic).values()) == 40


@pytest.mark.parametrize("order", ["none", "key", "queue"])
def test_a_reset_drops_what_was_read_ahead_of_slow_listeners(
    shared: Cluster, address: str, topic: str, order: str
) -> None:
    """Each queue has read ahead as far as it may: no pull is there to hear of the reset."""
    make(address, topic, [], queues=1)
    with Producer(name_server=address) as producer:
        for broker in shared.brokers:
            queue = QueueId(topic, broker.name, 0)
            producer.send_batch(topic, [b"old"] * 500, queue=queue)
    group, seen = f"push-{topic}", Counter[bytes]()

    def listener(message: ReceivedMessage) -> None:
        time.sleep(0.005)
        seen[message.body] += 1

    consumer = PushConsumer(
        name_server=address,
        group=group,
        order=order,  # type: ignore[arg-type]
        threads=1,
        ahead_messages=1600,
        commit_interval=0.2,
    )
    consumer.subscribe(topic, listener)
    with consumer:
        await_true(lambda: consumer.stats().waiting >= 600 and seen[b"old"] > 5, 10)
        for broker in shared.brokers:
            fields = {"topic": topic, "group": group, "timestamp": "-1", "isForce": "true"}
            with Connection(broker.address) as connection:
                answer = connection.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
                assert answer.code == 0, answer.remark
        before = seen[b"old"]
        with Producer(name_server=address) as producer:
            for broker in shared.brokers:
                producer.send(topic, b"new", queue=QueueId(topic, broker.name, 0))
        await_true(lambda: seen[b"new"] == 2, 20)
        assert seen[b"old"] - before < 300, "of 990 that were read ahead"
    assert sum(offset or 0 for offset in committed(address, group, topic).values()) == 1002


def test_calls_that_all_hang_and_then_return_do_not_end_consumption(
    address: str, topic: str
) -> None:
    make(address, topic, [str(number) for number in range(6)], queues=1)
    release, seen = threading.Event(), set()

    def listener(body: str) -> None:
        release.wait(20)
        seen.add(body)

    consumer = PushConsumer(
        name_server=address, group=f"push-{topic}", threads=1, time_limit=0.1, order="key"
    )
    consumer.subscribe(topic, listener)
    with consumer:
        await_true(lambda: consumer.stats()["timed_out"] >= 2, 10)
        release.set()
        with Producer(name_server=address) as producer:
            producer.send(topic, "after the outage")
        await_true(lambda: "after the outage" in seen, 10)


def test_lists_are_of_one_topic_and_a_bad_body_is_dead_alone(address: str, topic: str) -> None:
    other = f"{topic}-other"
    make(address, topic, ["1", "2", "bad", "3"], queues=1)
    make(address, other, ["4", "5"], queues=1)
    seen: dict[str, list[int]] = defaultdict(list)
    failed = threading.Event()

    @dataclass
    class Number:
        id: int

    def first(bodies: list[str]) -> None:
        if not failed.is_set():
            raise ReconsumeLater(delay_level=1)
        seen[topic] += [int(body) for body in bodies if body != "bad"]

    def second(bodies: list[dict[str, object]]) -> None:
        seen[other] += [len(bodies)]

    group = f"push-{topic}"
    consumer = PushConsumer(name_server=address, group=group, consume_batch=16)
    consumer.subscribe(topic, first)
    consumer.subscribe(other, second)
    with consumer:
        await_true(lambda: consumer.stats()["dead"] == 2, 10)
        failed.set()
        await_true(lambda: sorted(seen[topic]) == [1, 2, 3], 15)
    assert not seen[other], "no body of it is a JSON object"


def test_an_orderly_list_that_fails_comes_again_before_all_others(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group="looks", auto_commit=None) as looker:
        queue = looker.queues(topic)[0]
    with Producer(name_server=address) as producer:
        for number in range(60):
            producer.send(topic, str(number), queue=queue)
    handled: list[int] = []
    failed: set[int] = set()

    def listener(bodies: list[str]) -> None:
        numbers = [int(body) for body in bodies]
        if any(number % 10 == 3 and number not in failed for number in numbers):
            failed.update(numbers)
            raise ReconsumeLater
        handled.extend(numbers)

    consume(
        address,
        f"push-{topic}",
        topic,
        listener,
        lambda: len(handled) >= 60,
        order="queue",
        consume_batch=8,
        suspend_pause=0.05,
    )
    assert handled == list(range(60))


@pytest.mark.parametrize("order", ["none", "key", "queue"])
def test_a_close_waits_for_calls_and_not_for_pauses(address: str, topic: str, order: str) -> None:
    make(address, topic, [str(number) for number in range(5)], queues=1)
    calls = Counter[str]()

    def listener(body: str) -> None:
        calls[body] += 1
        raise ReconsumeLater(pause=60)

    group = f"push-{topic}"
    consumer = PushConsumer(name_server=address, group=group, order=order)  # type: ignore[arg-type]
    consumer.subscribe(topic, listener)
    consumer.start()
    await_true(lambda: bool(calls), 10)
    began = time.monotonic()
    consumer.close(timeout=20)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("order", ["none", "key", "queue"])
def test_no_call_begins_after_the_close(address: str, topic: str, order: str) -> None:
    make(address, topic, [str(number) for number in range(400)], queues=1)
    ended, late, calls = threading.Event(), [], Counter[str]()

    def listener(body: str) -> None:
        if ended.is_set():
            late.append(body)
        calls[body] += 1
        if len(calls) > 100:
            time.sleep(0.02)

    group = f"push-{topic}"
    consumer = PushConsumer(name_server=address, group=group, order=order)  # type: ignore[arg-type]
    consumer.subscribe(topic, listener)
    consumer.start()
    await_true(lambda: len(calls) > 100, 10)
    closers = [threading.Thread(target=consumer.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(20)
    ended.set()
    time.sleep(0.2)
    assert not late
    consume(
        address,
        group,
        topic,
        lambda one: calls.update([one.body.decode()]),
        lambda: len(calls) == 400,
        order=order,
    )
    assert max(calls.values()) == 1, "what was given back came to nobody twice"


class Careless(ReconsumeLater):
    """Forgets its base's constructor."""

    def __init__(self) -> None:
        pass


def test_a_listener_may_close_its_consumer_and_raise_what_it_likes(
    address: str, topic: str
) -> None:
    make(address, topic, ["1", "2", "3"], queues=1)
    consumer = PushConsumer(name_server=address, group=f"push-{topic}", threads=1)
    seen: list[str] = []

    def listener(body: str) -> None:
        seen.append(body)
        if len(set(seen)) < 3:
            raise Careless
        consumer.close()

    consumer.subscribe(topic, listener)
    consumer.start()
    await_true(lambda: repr(consumer).endswith("closed>"), 10)


def test_a_consumer_that_fails_to_start_is_not_in_the_group(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(40)])
    group = f"push-{topic}"
    broken = PushConsumer(name_server=address, group=group)
    broken.subscribe(topic, print)
    broken.subscribe(f"{topic}-missing", print)
    with pytest.raises(TopicNotFound):
        broken.start()
    seen: set[str] = set()
    consume(address, group, topic, lambda one: seen.add(one.body.decode()), lambda: len(seen) == 40)


CLOSED_IN_START = """
import signal, sys
from pyrmq import ClosedError, PushConsumer

consumer = PushConsumer(name_server=sys.argv[1], group="g")
consumer.subscribe("t", print)
signal.signal(signal.SIGTERM, lambda *_: consumer.close(timeout=1))
print("starting", flush=True)
try:
    consumer.start()
except ClosedError:
    print("closed", flush=True)
"""


def test_a_signal_handler_closes_a_consumer_that_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-c", CLOSED_IN_START, address], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "starting\n"
            connection, _ = silent.accept()
            # It waits for the answer now, which never comes.
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(20) == 0
            finally:
                process.kill()
                connection.close()
            assert process.stdout.read() == "closed\n"
