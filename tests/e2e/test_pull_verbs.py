"""What a polled consumer can do with its queues apart from polling them."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

import pytest
from tests.e2e.relay import relayed
from tests.e2e.test_push import committed, make
from tests.e2e.wire import await_true

import pyrmq.aio
from pyrmq import ConfigError, Producer, PullConsumer, RmqError, TopicNotFound
from pyrmq.codes import RequestCode
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.reference.frame import Frame

    from pyrmq import QueueId, ReceivedMessage
    from pyrmq.message import MessageBatch
    from pyrmq.testing import Cluster


def polled(consumer: PullConsumer, wanted: int) -> list[ReceivedMessage]:
    """Poll until there are `wanted` messages."""
    found: list[ReceivedMessage] = []

    def is_enough() -> bool:
        found.extend(consumer.poll(64, 0.2))
        return len(found) >= wanted

    await_true(is_enough, 10)
    return found


def test_a_paused_queue_gives_nothing_until_it_is_resumed(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    with (
        PullConsumer(name_server=address, group=f"g-{topic}") as consumer,
        Producer(name_server=address) as producer,
    ):
        consumer.subscribe(topic)
        still, other = consumer.assignment()
        consumer.pause([still])
        for queue in (still, other):
            for number in range(5):
                producer.send(topic, str(number), queue=queue)
        assert {message.broker for message in polled(consumer, 5)} == {other.broker}
        assert consumer.paused() == [still]
        consumer.resume([still])
        rest = polled(consumer, 5)
        assert [message.body for message in rest] == [str(number).encode() for number in range(5)]
        assert {message.broker for message in rest} == {still.broker}
        with pytest.raises(ConfigError, match="not assigned"):
            consumer.pause([still._replace(queue_id=9)])


def test_what_was_fetched_of_a_paused_queue_waits(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(100)], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        first = consumer.poll(1, 10)
        consumer.pause(consumer.assignment())
        assert consumer.poll(64, 0.3) == []
        consumer.resume(consumer.paused())
        seen = [message.body for message in [*first, *polled(consumer, 99)]]
        assert len(set(seen)) == 100


def test_chosen_offsets_are_committed(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(40)], queues=2)
    group = f"g-{topic}"
    with PullConsumer(name_server=address, group=group, auto_commit=None) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        consumer.commit({queues[0]: 3, queues[3]: 7})
        offsets = consumer.offsets(queues)
        assert [offsets[queue].committed for queue in queues] == [3, None, None, 7]
        assert [offsets[queue].last for queue in queues] == [10] * 4
        assert [offsets[queue].lag for queue in queues] == [7, 10, 10, 3]
        assert consumer.bounds(queues[0]) == (0, 10)
        assert consumer.committed(queues[3]) == 7


def test_a_topic_is_left_with_its_last_positions(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(10)], queues=1)
    other = f"{topic}-other"
    make(address, other, ["x"], queues=1)
    group = f"g-{topic}"
    with PullConsumer(name_server=address, group=group) as consumer:
        consumer.subscribe([topic, other])
        assert len(polled(consumer, 11)) == 11
        consumer.poll(1, 0)
        consumer.unsubscribe(topic)
        assert {queue.topic for queue in consumer.assignment()} == {other}
        left = consumer.offsets(consumer.queues(topic))
        assert sum(each.committed or 0 for each in left.values()) == 10
        with pytest.raises(ConfigError, match="not subscribed"):
            consumer.unsubscribe(topic)


def test_of_topics_that_are_not_all_there_none_is_subscribed_to(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    wanted = [topic, f"{topic}-missing"]
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        with pytest.raises(TopicNotFound, match="missing"):
            consumer.subscribe(wanted)
        assert not consumer.assignment()

    async def of_a_loop() -> None:
        async with pyrmq.aio.PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
            with pytest.raises(TopicNotFound, match="missing"):
                await consumer.subscribe(wanted)
            assert not consumer.assignment()

    asyncio.run(of_a_loop())


def test_a_batch_gives_lists_and_columns(address: str, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")
    make(address, topic, [], queues=1)
    with Producer(name_server=address) as producer:
        for number in range(30):
            body = str(number) * (3000 if number == 7 else 1)
            producer.send(topic, body, keys=f"k{number}", tags="even" if number % 2 == 0 else None)
    batches: list[MessageBatch] = []
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)

        def has_all() -> bool:
            batches.append(consumer.poll_batch(16, 0.2))
            return sum(map(len, batches)) == 30

        await_true(has_all, 10)
        assert len(consumer.poll_batch(16, 0)) == 0
    bodies = [body for batch in batches for body in batch.bodies]
    assert sorted(bodies) == sorted(
        (str(number) * (3000 if number == 7 else 1)).encode() for number in range(30)
    )
    for batch in (batch for batch in batches if len(batch)):
        messages = batch.messages
        assert batch.keys == [message.keys[0] for message in messages]
        assert batch.tags == [message.tags for message in messages]
        assert batch.offsets == [message.queue_offset for message in messages]
        assert batch.queue_ids == [message.queue_id for message in messages]
        assert batch.brokers == [message.broker for message in messages]
        assert batch.topics == [topic] * len(batch)
        assert batch.store_timestamps == [message.store_timestamp for message in messages]
        table = batch.to_arrow()
        assert table.column("body").to_pylist() == batch.bodies
        assert table.column("queueOffset").to_pylist() == batch.offsets
        assert batch.to_arrow(["tags"]).schema == pa.schema([("tags", pa.string())])
        with pytest.raises(ConfigError, match="unknown columns"):
            batch.to_arrow(["colour"])


def test_a_pattern_takes_topics_that_match_also_those_that_come_later(
    address: str, topic: str
) -> None:
    for name in ("red", "green", "blue"):
        make(address, f"{topic}-{name}", [name], queues=1)
    pattern = re.compile(re.escape(topic) + "-(red|green|late)")
    with PullConsumer(name_server=address, group=f"g-{topic}", rebalance=0.2) as consumer:
        consumer.subscribe(pattern)
        assert {message.body for message in polled(consumer, 2)} == {b"red", b"green"}
        make(address, f"{topic}-late", ["late"], queues=1)
        assert [message.body for message in polled(consumer, 1)] == [b"late"]
        assert {queue.topic for queue in consumer.assignment()} == {
            f"{topic}-{name}" for name in ("red", "green", "late")
        }


class All:
    """A strategy of the application's own, which a thread of the consumer waits to be asked for."""

    def __init__(self) -> None:
        self.calls = 0

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> list[QueueId]:
        """Return all queues."""
        self.calls += 1
        return [*queues]


def test_a_pattern_is_looked_at_beside_a_strategy(address: str, topic: str) -> None:
    with PullConsumer(
        name_server=address, group=f"g-{topic}", rebalance=0.5, allocate=All()
    ) as consumer:
        consumer.subscribe(re.compile(re.escape(topic) + "-.*"))
        make(address, f"{topic}-late", [], queues=1)
        await_true(lambda: len(consumer.assignment()) == 2, 15)


def test_a_strategy_that_exits_is_asked_again(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Exiting(All):
        def allocate(
            self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
        ) -> list[QueueId]:
            if not super().allocate(client_id, queues, client_ids) or self.calls == 1:
                sys.exit("no")
            return [*queues]

    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}", allocate=Exiting()) as consumer:
        # The allocator may have ended in the rebalance that a broker asked for.
        with suppress(RmqError):
            consumer.subscribe(topic)
        consumer.subscribe(topic)
        assert len(consumer.assignment()) == 2
    assert "a callback failed" in caplog.text


@pytest.mark.timeout(120)
def test_a_member_that_does_not_poll_gives_its_queues_back_until_it_does(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, [], queues=2)

    def member(**options: float) -> PullConsumer:
        return PullConsumer(name_server=address, group=f"g-{topic}", rebalance=0.5, **options)  # type: ignore[arg-type]

    # Long enough for both to get their queues first, also on a busy machine.
    with member(max_poll_interval=3.0) as stuck, member() as other:
        stuck.subscribe(topic)
        other.subscribe(topic)
        await_true(lambda: len(stuck.assignment()) == len(other.assignment()) == 2, 30)
        with caplog.at_level(logging.ERROR, "pyrmq.consumer"):
            await_true(lambda: len(other.assignment()) == 4 and not stuck.assignment(), 30)
        assert "`max_poll_interval` is 3 s" in caplog.text

        def is_back() -> bool:
            stuck.poll(1, 0.05)
            return len(stuck.assignment()) == len(other.assignment()) == 2

        await_true(is_back, 30)
    with pytest.raises(ConfigError, match="max_poll_interval"):
        member(max_poll_interval=0)


class Heartbeats:
    """Answers to heartbeats come late, or, while `held`, when it is no more."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.held = False
        self._changed = threading.Condition()

    def __call__(self, answer: Frame) -> Frame:
        """Pass on an answer."""
        with self._changed:
            self._changed.wait(self.delay)
            self._changed.wait_for(lambda: not self.held, 20)
        return answer

    def release(self) -> None:
        """Let answers pass."""
        with self._changed:
            self.held = False
            self._changed.notify_all()


def test_a_poll_neither_waits_for_topics_that_are_joined_again_nor_keeps_a_strategy_from_it() -> (
    None
):
    heartbeats = Heartbeats(delay=0.4)
    with relayed(heartbeats, {RequestCode.HEART_BEAT}) as running:
        for name in ("T-1", "T-2"):
            make(running.name_server, name, [name], queues=1)
        with PullConsumer(
            name_server=running.name_server,
            group="g",
            start="first",
            allocate=All(),
            max_poll_interval=0.4,
        ) as consumer:
            consumer.subscribe(re.compile("T-.*"))
            await_true(lambda: not consumer.assignment(), 20)
            heartbeats.held = True
            assert consumer.poll(timeout=0.2) == []
            heartbeats.release()
            assert {message.body for message in polled(consumer, 2)} == {b"T-1", b"T-2"}
            heartbeats.delay = 0.0


def test_an_event_loop_goes_on_while_queues_are_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heartbeats = Heartbeats()

    async def main(address: str) -> None:
        async with pyrmq.aio.PullConsumer(
            name_server=address, group="g", max_poll_interval=1.0
        ) as consumer:
            await consumer.subscribe(["T-1", "T-2"])
            heartbeats.held = True
            await asyncio.to_thread(await_true, lambda: "not polled for" in caplog.text, 20)
            began = monotonic()
            removal = asyncio.ensure_future(consumer.unsubscribe("T-2"))
            await asyncio.sleep(0)
            # The broker's time is 3 s.
            assert monotonic() - began < 2
            heartbeats.release()
            await removal

    with (
        relayed(heartbeats, {RequestCode.HEART_BEAT}) as running,
        caplog.at_level(logging.ERROR, "pyrmq.consumer"),
    ):
        for name in ("T-1", "T-2"):
            make(running.name_server, name, [], queues=1)
        asyncio.run(main(running.name_server))


def test_a_subscription_that_is_cancelled_does_not_join_later() -> None:
    async def main(running: Cluster) -> None:
        async with pyrmq.aio.PullConsumer(name_server=running.name_server, group="g") as consumer:
            with running.name_servers[0].network.silence(), pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.subscribe("T-1"), 0.3)
            # The name server answers now. It was asked for the other topic first.
            await consumer.subscribe("T-2")
            await consumer.poll(timeout=0.5)
            assert {queue.topic for queue in consumer.assignment()} == {"T-2"}
            await consumer.subscribe("T-1")
            assert {queue.topic for queue in consumer.assignment()} == {"T-1", "T-2"}

    with cluster(faults=True) as running:
        for name in ("T-1", "T-2"):
            make(running.name_server, name, [], queues=1)
        asyncio.run(main(running))


def test_a_pattern_that_is_cancelled_joins_no_topic_later() -> None:
    heartbeats = Heartbeats()

    async def main(address: str) -> None:
        async with pyrmq.aio.PullConsumer(
            name_server=address, group="g", rebalance=0.2
        ) as consumer:
            heartbeats.held = True
            asyncio.get_running_loop().call_later(1.0, heartbeats.release)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.subscribe(re.compile("T-.*")), 0.5)
            # From here on a thread looks for topics of patterns.
            await consumer.subscribe(re.compile("U-.*"))
            assert await consumer.poll(timeout=1.5) == []
            assert {queue.topic for queue in consumer.assignment()} == {"U-1"}
            await consumer.subscribe(re.compile("T-.*"))
            assert {queue.topic for queue in consumer.assignment()} == {"T-1", "T-2", "U-1"}

    with relayed(heartbeats, {RequestCode.HEART_BEAT}) as running:
        for name in ("T-1", "T-2", "U-1"):
            make(running.name_server, name, [], queues=1)
        asyncio.run(main(running.name_server))


def test_a_call_for_several_topics_that_fails_late_changes_nothing(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second topic is refused after the first was joined with another filter."""
    first, second = f"{topic}-1", f"{topic}-2"
    make(address, first, ["without a tag"], queues=1)
    make(address, second, [], queues=1)

    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        consumer.subscribe(first, "one || two")
        native = consumer._control

        class Refusing:
            def __getattr__(self, name: str) -> object:
                return getattr(native, name)

            def subscribe(self, name: str, text: str, is_sql: bool) -> None:  # noqa: FBT001
                if name == second:
                    raise TopicNotFound("refused")
                native.subscribe(name, text, is_sql)

        monkeypatch.setattr(consumer._subscriptions, "_control", Refusing())
        with pytest.raises(TopicNotFound, match="refused"):
            consumer.subscribe([first, second])
        monkeypatch.undo()
        assert {queue.topic for queue in consumer.assignment()} == {first}
        assert not consumer.poll(timeout=1.0), "the filter is the old one"


def test_asyncio_follows_a_pattern_and_gives_queues_back_when_nobody_polls(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{topic}-red", f"{topic}-green"]
    for name in names:
        make(address, name, [name], queues=1)

    async def main() -> None:
        options = {"max_poll_interval": 3.0, "rebalance": 0.5}
        group = f"g-{topic}"
        async with pyrmq.aio.PullConsumer(
            name_server=address,
            group=group,
            **options,  # type: ignore[arg-type]
        ) as consumer:
            await consumer.subscribe(re.compile(re.escape(topic) + "-.*"))
            assert {queue.topic for queue in consumer.assignment()} == set(names)
            async with asyncio.timeout(40):
                await asyncio.to_thread(await_true, lambda: not consumer.assignment(), 30)
                found: set[bytes] = set()
                while len(found) < len(names):
                    found |= {one.body for one in await consumer.poll(timeout=0.5)}
            assert found == {name.encode() for name in names}
            await consumer.unsubscribe(names[0])

    with caplog.at_level(logging.ERROR, "pyrmq.consumer"):
        asyncio.run(main())
    assert "not polled for" in caplog.text


def test_arguments_that_cannot_work_are_refused(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)

    async def main() -> None:
        async with pyrmq.aio.PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
            await consumer.subscribe(topic)
            (queue, *_) = await consumer.queues(topic)
            for offset in (2**70, -1, "1"):
                with pytest.raises(ConfigError, match=r"from 0 to 2\*\*63 - 1"):
                    await consumer.commit({queue: offset})  # type: ignore[dict-item]

    asyncio.run(main())
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        (queue, *_) = consumer.queues(topic)
        with pytest.raises(ConfigError, match="the offset of"):
            consumer.commit({queue: 2**63})
    assert not any(committed(address, f"g-{topic}", topic).values())


def test_two_members_of_one_name_are_warned(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def member(name: str) -> PullConsumer:
        return PullConsumer(name_server=address, group=f"g-{topic}", instance_name=name)

    warning = "two consumers of this process have the client id"
    with member("one"):
        assert warning not in caplog.text
        with member("two"):
            assert warning not in caplog.text
        with member("one"):
            assert warning in caplog.text
    caplog.clear()
    with member("one"):
        assert warning not in caplog.text, "the others are closed"
