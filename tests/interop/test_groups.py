"""Groups of our consumers on the real broker: members of one process, callbacks, keys, resets."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyrmq import Admin, Producer, PullConsumer, PushConsumer, QueueId, ReconsumeLater, aio
from tests.interop.test_listeners import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyrmq import ReceivedMessage
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver

PAIRS = (("java", "JSON"),)


def send(cluster: Cluster, topic: str, each: int) -> None:
    """Send this number of messages to each queue: their bodies are `<queue>/<number>`."""
    with Producer(name_server=cluster.namesrv) as producer:
        for queue_id in range(4):
            queue = QueueId(topic, cluster.broker_name, queue_id)
            producer.send_batch(topic, [f"{queue_id}/{n}" for n in range(each)], queue=queue)


def polled(consumer: PullConsumer, wanted: int) -> list[ReceivedMessage]:
    """Poll until this number of messages has come."""
    found: list[ReceivedMessage] = []

    def is_enough() -> bool:
        found.extend(consumer.poll(timeout=0.2))
        return len(found) >= wanted

    until(is_enough)
    return found


def poll_until(consumers: Iterable[PullConsumer], condition: Callable[[], bool]) -> None:
    """Poll consumers in turn until something holds."""

    def holds() -> bool:
        for consumer in consumers:
            consumer.poll(timeout=0.05)
        return condition()

    until(holds)


def committed(cluster: Cluster, group: str, topic: str) -> dict[int, int | None]:
    """Ask how far a group has come in each queue, without joining it."""
    with PullConsumer(name_server=cluster.namesrv, group=group, auto_commit=None) as looker:
        return {queue.queue_id: looker.committed(queue) for queue in looker.queues(topic)}


def test_two_members_of_one_process_are_two_for_the_real_broker(
    cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    options = {"name_server": cluster.namesrv, "group": group, "rebalance": 1.0}
    with Admin(name_server=cluster.namesrv) as admin, ExitStack() as stack:
        members = [stack.enter_context(PullConsumer(**options)) for _ in range(2)]  # type: ignore[arg-type]
        for member in members:
            member.subscribe(topic)
        poll_until(members, lambda: [len(one.assignment()) for one in members] == [2, 2])
        assert set(members[0].assignment()).isdisjoint(members[1].assignment())
        described = admin.describe_group(group)
        ids = {member._control.client_id() for member in members}
        assert len(ids) == 2
        assert {one.client_id for one in described.members} == ids
        # Each has been asked, by its own connection, what it subscribes to (307).
        assert [(one.subscriptions or {}).get(topic) for one in described.members] == ["*", "*"]
        assert len({one.address for one in described.members}) == 2
        send(cluster, topic, 5)
        seen: list[Counter[int]] = [Counter(), Counter()]

        def has_all() -> bool:
            for member, count in zip(members, seen, strict=True):
                count.update(one.queue_id for one in member.poll(timeout=0.05))
            return sum(count.total() for count in seen) >= 20

        until(has_all)
        for member, count in zip(members, seen, strict=True):
            assert count == {queue.queue_id: 5 for queue in member.assignment()}


def test_a_paused_queue_waits(cluster: Cluster, topic: str) -> None:
    with PullConsumer(name_server=cluster.namesrv, group=f"{topic}-group") as consumer:
        consumer.subscribe(topic)
        still = consumer.assignment()[0]
        consumer.pause([still])
        send(cluster, topic, 3)
        assert {one.queue_id for one in polled(consumer, 9)} == {0, 1, 2, 3} - {still.queue_id}
        assert consumer.poll(timeout=0.3) == []
        consumer.resume([still])
        assert [one.queue_id for one in polled(consumer, 3)] == [still.queue_id] * 3


def test_a_pattern_finds_topics_also_those_that_come_later(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    late = f"{topic}-late"
    send(cluster, topic, 1)
    pattern = re.compile(re.escape(topic) + "(-late)?")
    with PullConsumer(
        name_server=cluster.namesrv, group=f"{topic}-group", rebalance=0.5
    ) as consumer:
        consumer.subscribe(pattern)
        assert {one.topic for one in polled(consumer, 4)} == {topic}
        driver.call("admin.createTopic", namesrv=cluster.namesrv, topic=late, broker=cluster.broker)
        send(cluster, late, 1)
        assert {one.topic for one in polled(consumer, 4)} == {late}


def test_queues_are_taken_and_given_back_with_callbacks_and_a_commit(
    cluster: Cluster, topic: str
) -> None:
    send(cluster, topic, 3)
    group, events = f"{topic}-group", []
    positions: dict[int, int] = {}

    def assigned(_: PullConsumer, queues: list[QueueId]) -> None:
        events.append(("assigned", {queue.queue_id for queue in queues}))

    def revoked(consumer: PullConsumer, queues: list[QueueId]) -> None:
        events.append(("revoked", {queue.queue_id for queue in queues}))
        positions.update({queue.queue_id: consumer.position(queue) for queue in queues})

    options = {"name_server": cluster.namesrv, "group": group, "rebalance": 1.0}
    with PullConsumer(
        **options,  # type: ignore[arg-type]
        auto_commit=600,
        on_assigned=assigned,
        on_revoked=revoked,
    ) as first:
        first.subscribe(topic)
        assert len(polled(first, 12)) == 12
        assert events == [("assigned", {0, 1, 2, 3})]
        with PullConsumer(**options) as second:  # type: ignore[arg-type]
            second.subscribe(topic)
            poll_until((first, second), lambda: len(second.assignment()) == 2)
            poll_until((first, second), lambda: len(first.assignment()) == 2)
            moved = {queue.queue_id for queue in second.assignment()}
            assert events[1:] == [("revoked", moved)]
            assert positions == dict.fromkeys(moved, 3)
            known = committed(cluster, group, topic)
            assert {queue_id: known[queue_id] for queue_id in moved} == positions
            assert second.poll(timeout=0.5) == [], "what was returned before was committed"
    assert [kind for kind, _ in events[2:]] == ["revoked"]


def test_keys_keep_their_order_side_by_side(cluster: Cluster, topic: str) -> None:
    queue = QueueId(topic, cluster.broker_name, 0)
    with Producer(name_server=cluster.namesrv) as producer:
        for number in range(60):
            key = f"customer-{number % 4}"
            producer.send(topic, f"{key}/{number}", sharding_key=key, queue=queue)
    slow, group = threading.Event(), f"{topic}-group"
    handled: dict[str, list[int]] = {f"customer-{place}": [] for place in range(4)}
    failed: set[str] = set()

    def listener(body: str) -> None:
        key, number = body.split("/")
        if body == "customer-0/0":
            assert slow.wait(30)
        if int(number) % 10 == 7 and body not in failed:
            failed.add(body)
            raise ReconsumeLater
        handled[key].append(int(number))

    consumer = PushConsumer(
        name_server=cluster.namesrv, group=group, order="key", suspend_pause=0.05
    )
    consumer.subscribe(topic, listener)
    with consumer:
        until(lambda: sum(map(len, handled.values())) == 45)
        assert handled["customer-0"] == []
        slow.set()
        until(lambda: sum(map(len, handled.values())) == 60)
    for place in range(4):
        assert handled[f"customer-{place}"] == [*range(place, 60, 4)]
    assert len(failed) == 6
    assert committed(cluster, group, topic)[0] == 60


def test_coroutines_are_awaited_and_their_messages_committed(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, 25)
    group, seen = f"{topic}-group", Counter[str]()
    running = most = 0

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=cluster.namesrv, group=group, tasks=8)

        @consumer.listener(topic)
        async def handle(body: str) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.002)
            running -= 1
            seen[body] += 1

        async with consumer, asyncio.timeout(60):
            while len(seen) < 100:  # noqa: ASYNC110 - of the test's own
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert set(seen.values()) == {1}
    assert 1 < most <= 8
    assert committed(cluster, group, topic) == dict.fromkeys(range(4), 25)


def test_a_reset_by_mqadmin_is_seen_by_listeners_that_run(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    send(cluster, topic, 5)
    group, seen = f"{topic}-group", Counter[str]()
    consumer = PushConsumer(name_server=cluster.namesrv, group=group, rebalance=1.0)
    consumer.subscribe(topic, lambda message: seen.update([message.body.decode()]))
    with consumer:
        until(lambda: len(seen) == 20)
        consumer.commit()
        output = driver.mqadmin(
            f"resetOffsetByTime -n {cluster.namesrv} -g {group} -t {topic} -s 0"
        )
        assert "brokerName" in output, output
        # The broker tells of it in the answer to the next pull, and holds one for 15 s.
        with Producer(name_server=cluster.namesrv) as producer:
            for queue_id in range(4):
                queue = QueueId(topic, cluster.broker_name, queue_id)
                producer.send(topic, f"{queue_id}/late", queue=queue)
        until(lambda: len(seen) == 24)
        until(
            lambda: {seen[f"{place}/{number}"] for place in range(4) for number in range(5)} == {2}
        )
    assert committed(cluster, group, topic) == dict.fromkeys(range(4), 6)
