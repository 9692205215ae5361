"""Callbacks of a polled consumer for queues that come and go: two brokers, two members."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_push import committed, make
from tests.e2e.wire import await_true

import pyrmq.aio
from pyrmq import Admin, ConfigError, ForkError, Producer, PullConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq import QueueId

QUEUES = 4
"""Of the topic of each test, on both brokers together."""


class Heard:
    """Records the callbacks of a consumer."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[QueueId]]] = []
        self.threads: set[int] = set()

    def options(self) -> dict[str, Any]:
        """Return the options of a consumer that is recorded."""
        return {f"on_{kind}": self._of(kind) for kind in ("assigned", "revoked", "lost")}

    def _of(self, kind: str) -> Callable[[object, list[QueueId]], None]:
        def note(_consumer: object, queues: list[QueueId]) -> None:
            self.events.append((kind, queues))
            self.threads.add(threading.get_ident())

        return note

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of the callbacks, in order."""
        return [kind for kind, _ in self.events]

    def queues(self, kind: str) -> set[QueueId]:
        """Return the queues of all callbacks of a kind."""
        return {queue for one, queues in self.events if one == kind for queue in queues}


def member(address: str, topic: str, **options: Any) -> PullConsumer:  # noqa: ANN401
    return PullConsumer(name_server=address, group=f"g-{topic}", rebalance=0.5, **options)


def fill(address: str, topic: str) -> None:
    """Send three messages to each queue."""
    make(address, topic, [], queues=QUEUES // 2)
    with (
        PullConsumer(name_server=address, group="looks", auto_commit=None) as looker,
        Producer(name_server=address) as producer,
    ):
        for queue in looker.queues(topic):
            producer.send_batch(topic, [b"0", b"1", b"2"], queue=queue)


def poll_all(consumer: PullConsumer, count: int = 3 * QUEUES) -> None:
    """Poll until `count` messages have come."""
    seen = 0

    def is_enough() -> bool:
        nonlocal seen
        seen += len(consumer.poll(timeout=0.2))
        return seen >= count

    await_true(is_enough, 15)
    assert seen == count


def polls_until(consumer: PullConsumer, condition: Callable[[], bool]) -> None:
    """Poll until something holds."""

    def holds() -> bool:
        consumer.poll(1, 0.05)
        return condition()

    await_true(holds, 30)


def test_queues_go_back_after_their_callback_with_a_commit_of_what_was_returned(
    address: str, topic: str
) -> None:
    fill(address, topic)
    first, second = Heard(), Heard()
    positions: dict[QueueId, int] = {}

    def revoked(consumer: PullConsumer, queues: list[QueueId]) -> None:
        assert set(queues) <= set(consumer.assignment())
        positions.update({queue: consumer.position(queue) for queue in queues})
        first.events.append(("revoked", queues))

    options = first.options() | {"on_revoked": revoked}
    with member(address, topic, auto_commit=600, **options) as one:
        one.subscribe(topic)
        assert not first.events, "callbacks are for the thread that polls"
        poll_all(one)
        assert first.queues("assigned") == set(one.assignment())
        with member(address, topic, **second.options()) as two:
            two.subscribe(topic)
            polls_until(two, lambda: len(second.queues("assigned")) == QUEUES // 2)
            # Nobody polls the first one: its queues wait, and it returns nothing of them.
            assert "revoked" not in first.kinds
            assert len(one.assignment()) == QUEUES
            polls_until(one, lambda: len(one.assignment()) == QUEUES // 2)
            assert set(positions) == second.queues("assigned")
            assert set(positions.values()) == {3}
            known = committed(address, f"g-{topic}", topic)
            assert {queue: known[queue] for queue in positions} == positions
        polls_until(one, lambda: len(first.queues("assigned")) == len(one.assignment()) == QUEUES)
    assert second.kinds[-1] == first.kinds[-1] == "revoked", "the close revokes what is left"
    assert second.queues("revoked") == second.queues("assigned")
    assert first.threads == second.threads == {threading.get_ident()}


def test_a_consumer_seeks_before_anything_of_a_new_queue_is_returned(
    address: str, topic: str
) -> None:
    fill(address, topic)

    def assigned(consumer: PullConsumer, queues: list[QueueId]) -> None:
        for queue in queues:
            consumer.seek(queue, 2)

    with member(address, topic, on_assigned=assigned) as consumer:
        consumer.subscribe(topic)
        found = [next(iter(consumer)) for _ in range(QUEUES)]
        assert {message.queue_offset for message in found} == {2}


def cannot_flush(_consumer: PullConsumer, _queues: list[QueueId]) -> None:
    raise OSError("cannot flush")


@pytest.mark.parametrize("way", ["unsubscribe", "close", "with"])
def test_what_a_callback_raises_at_the_end_is_raised_and_nothing_is_committed(
    address: str, topic: str, way: str
) -> None:
    fill(address, topic)
    consumer = member(address, topic, auto_commit=600, on_revoked=cannot_flush)
    consumer.subscribe(topic)
    poll_all(consumer)
    if way == "with":
        with pytest.raises(KeyError, match="of the block"), consumer:
            raise KeyError("of the block")
    else:
        with pytest.raises(OSError, match="cannot flush"):
            consumer.close() if way == "close" else consumer.unsubscribe(topic)
    assert way != "unsubscribe" or not consumer.assignment()
    consumer.close()
    assert set(committed(address, f"g-{topic}", topic).values()) == {None}


def test_what_a_callback_raises_in_a_poll_ends_nothing(address: str, topic: str) -> None:
    fill(address, topic)
    with member(address, topic, on_revoked=cannot_flush) as consumer:
        consumer.subscribe(topic)
        poll_all(consumer)
        with member(address, topic) as other:
            other.subscribe(topic)
            await_true(lambda: len(other.assignment()) == QUEUES // 2, 15)
            with pytest.raises(OSError, match="cannot flush"):
                polls_until(consumer, lambda: False)
            assert len(consumer.assignment()) == QUEUES // 2
        polls_until(consumer, lambda: len(consumer.assignment()) == QUEUES)
        with pytest.raises(OSError, match="cannot flush"):
            consumer.close()


def test_queues_of_a_member_that_did_not_poll_are_lost(address: str, topic: str) -> None:
    fill(address, topic)
    heard = Heard()
    with member(address, topic, max_poll_interval=2.5, **heard.options()) as consumer:
        consumer.subscribe(topic)
        poll_all(consumer)
        await_true(lambda: not consumer.assignment(), 15)
        assert heard.kinds == ["assigned"]
        polls_until(consumer, lambda: heard.kinds.count("assigned") == 2)
        assert heard.kinds[:3] == ["assigned", "lost", "assigned"]
        assert len(heard.queues("lost")) == QUEUES


def test_without_a_callback_of_their_own_lost_queues_are_revoked(address: str, topic: str) -> None:
    fill(address, topic)
    heard = Heard()
    options = heard.options() | {"on_lost": None}
    with member(address, topic, **options) as consumer:
        consumer.subscribe(topic)
        poll_all(consumer)
        with Admin(name_server=address) as admin:
            # One queue of each broker is left.
            admin.create_topic(topic, queues=1)
        polls_until(consumer, lambda: len(consumer.assignment()) == 2)
        assert {queue.queue_id for queue in heard.queues("revoked")} == {1}


def test_a_queue_that_comes_back_is_not_paused_any_more(address: str, topic: str) -> None:
    fill(address, topic)
    heard = Heard()
    with member(address, topic, **heard.options()) as one:
        one.subscribe(topic)
        polls_until(one, lambda: len(one.assignment()) == QUEUES)
        one.pause(one.assignment())
        with member(address, topic) as two:
            two.subscribe(topic)
            polls_until(one, lambda: len(one.assignment()) == QUEUES // 2)
            assert one.paused() == one.assignment(), "a queue that stays is paused on"
        polls_until(one, lambda: len(one.assignment()) == QUEUES)
        assert set(one.paused()) == set(one.assignment()) - heard.queues("revoked")


def test_a_callback_must_not_poll_and_may_close(address: str, topic: str) -> None:
    fill(address, topic)
    seen: list[object] = []

    def assigned(consumer: PullConsumer, _queues: list[QueueId]) -> None:
        with pytest.raises(ConfigError, match="must not poll"):
            consumer.poll(1, 0)
        consumer.close()
        seen.append("closed")

    consumer = member(
        address, topic, on_assigned=assigned, on_revoked=lambda _, queues: seen.append(len(queues))
    )
    consumer.subscribe(topic)
    with pytest.raises(pyrmq.ClosedError):
        consumer.poll(1, 5)
    assert seen == [QUEUES, "closed"]
    with pytest.raises(ConfigError, match="`on_lost` is 'x'"):
        member(address, topic, on_lost="x")


def test_in_asyncio_callbacks_may_be_coroutine_functions(address: str, topic: str) -> None:
    fill(address, topic)
    heard: list[tuple[str, int]] = []

    async def assigned(consumer: pyrmq.aio.PullConsumer, queues: list[QueueId]) -> None:
        for queue in queues:
            await consumer.seek(queue, 1)
        heard.append(("assigned", len(queues)))

    async def revoked(consumer: pyrmq.aio.PullConsumer, queues: list[QueueId]) -> None:
        await consumer.commit(dict.fromkeys(queues, 2))
        heard.append(("revoked", len(queues)))

    def make_member() -> pyrmq.aio.PullConsumer:
        return pyrmq.aio.PullConsumer(
            name_server=address,
            group=f"g-{topic}",
            rebalance=0.5,
            auto_commit=None,
            on_assigned=assigned,
            on_revoked=revoked,
        )

    async def main() -> None:
        async with asyncio.timeout(30), make_member() as one:
            await one.subscribe(topic)
            found: list[int] = []
            while len(found) < 2 * QUEUES:
                found += [message.queue_offset for message in await one.poll(timeout=1.0)]
            assert set(found) == {1, 2}
            async with make_member() as two:
                await two.subscribe(topic)
                while len(one.assignment()) > QUEUES // 2:
                    await one.poll(1, 0.05)
                    await two.poll(1, 0.05)
            await one.unsubscribe(topic)
            assert not one.assignment()

    asyncio.run(main())
    assert heard[0] == ("assigned", QUEUES)
    assert sum(count for kind, count in heard if kind == "revoked") >= QUEUES
    assert set(committed(address, f"g-{topic}", topic).values()) == {2}


def test_a_child_forked_during_a_callback_gets_an_error_and_does_not_hang(
    address: str, topic: str
) -> None:
    make(address, topic, [], queues=QUEUES)
    inside, go = threading.Event(), threading.Event()

    def on_assigned(_consumer: object, _queues: list[QueueId]) -> None:
        inside.set()
        go.wait(20)

    with PullConsumer(
        name_server=address, group=f"{topic}-fork", on_assigned=on_assigned
    ) as consumer:
        consumer.subscribe(topic)
        polling = threading.Thread(target=consumer.poll, args=(1, 3))
        polling.start()
        assert inside.wait(10)
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, 5)
            try:
                consumer.poll(1, 0.1)
            except ForkError:
                consumer.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        go.set()
        polling.join()
