"""Hooks see everything that a producer sends, in both forms."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import await_true

from pyrmq import (
    ConfigError,
    Message,
    Producer,
    PullConsumer,
    RouteError,
    SendResult,
    TransactionProducer,
    TransactionState,
    aio,
)
from pyrmq.producer import SendHook, Sending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import ReceivedMessage


class Watch(SendHook):
    """Records what it sees, adds a property, and forbids a topic."""

    def __init__(self) -> None:
        self.before: list[Sending] = []
        self.after: list[tuple[Sending, BaseException | None, Any]] = []
        self.ends: list[tuple[TransactionState, bool]] = []

    def before_send(self, sending: Sending) -> None:
        """Record or refuse."""
        if sending.topic == "forbidden":
            raise PermissionError(sending.topic)
        sending.properties["hooked"] = "yes"
        sending.notes[self] = len(self.before)
        self.before.append(sending)

    def after_send(self, sending: Sending, error: BaseException | None, result: object) -> None:
        """Keep."""
        assert self.before[sending.notes[self]] is sending
        self.after.append((sending, error, result))

    def after_transaction(
        self, topic: str, message_id: str, state: TransactionState, *, asked: bool
    ) -> None:
        """Keep."""
        assert topic
        assert len(message_id) == 32
        self.ends.append((state, asked))

    def kinds(self) -> Counter[str]:
        """Return how many of each kind have an outcome."""
        return Counter(sending.kind for sending, _, _ in self.after)


class Failing(SendHook):
    """Raises after each send."""

    def after_send(self, sending: Sending, error: BaseException | None, result: object) -> None:
        """Raise."""
        raise RuntimeError("a hook that fails")


@pytest.fixture
def replying(address: str, topic: str) -> Iterator[str]:
    """Yield a topic whose consumer answers every request."""
    ended = threading.Event()
    watch = Watch()
    ready = threading.Event()

    def serve() -> None:
        with (
            Producer(
                name_server=address, group="replying", hooks=[watch], send_timeout=20
            ) as producer,
            PullConsumer(name_server=address, group=f"{topic}-replying") as consumer,
        ):
            producer.send(f"{topic}-asked", b"first")
            consumer.subscribe(f"{topic}-asked")
            ready.set()
            while not ended.is_set():
                for message in consumer.poll(timeout=0.1):
                    if "CORRELATION_ID" in message.properties:
                        assert message.properties["hooked"] == "yes"
                        producer.reply(message, b"answer")

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(30)
    yield f"{topic}-asked"
    ended.set()
    thread.join()
    assert watch.kinds()["reply"] > 0


def properties_in(address: str, topic: str, count: int) -> list[dict[str, str]]:
    """Return the properties of a topic's messages."""
    found: list[ReceivedMessage] = []
    with PullConsumer(name_server=address, group=f"{topic}-found") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=10)
            assert messages, f"only {len(found)} of {count} messages came"
            found += messages
    return [message.properties for message in found]


def test_hooks_see_every_way_of_sending_and_what_they_add_travels_along(
    address: str, topic: str, replying: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    with Producer(name_server=address, hooks=[watch, Failing()]) as producer:
        producer.send(topic, b"1")
        producer.send(topic, b"2", sharding_key="k", properties={"own": "1"})
        producer.send_async(topic, b"3").result(timeout=10)
        producer.produce(topic, b"4")
        producer.send_batch(topic, [b"5", Message(topic, b"6", properties={"own": "1"})])
        producer.send_oneway(topic, b"7")
        assert producer.request(replying, b"?", timeout=10).body == b"answer"
        producer.flush()
    assert watch.kinds() == {"send": 4, "batch": 1, "oneway": 1, "request": 1}
    assert all(error is None for _, error, _ in watch.after)
    results = {sending.kind: result for sending, _, result in watch.after}
    assert isinstance(results["send"], SendResult)
    assert [result.queue_id >= 0 for result in results["batch"]] == [True, True]
    assert results["oneway"] is None
    stored = properties_in(address, topic, 7)
    assert {found["hooked"] for found in stored} == {"yes"}
    assert sum("own" in found for found in stored) == 2
    assert "a hook that fails" in caplog.text


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_all_hooks_and_the_callback_hear_of_a_send_whatever_one_of_them_raises(
    address: str, topic: str, kind: type[BaseException]
) -> None:
    class Ends(SendHook):
        def after_send(self, *_: object) -> None:
            raise kind("a hook that ends")

    watch = Watch()
    delivered: list[object] = []
    with Producer(name_server=address, hooks=[watch, Ends()]) as producer:
        # A call of the application's own thread ends the program, but only then.
        with pytest.raises(SystemExit) if kind is SystemExit else nullcontext():
            producer.send(topic, b"1")
        assert watch.kinds() == {"send": 1}
        producer.send_async(topic, b"2").result(10)
        with suppress(SystemExit):
            producer.produce(topic, b"3", on_delivery=lambda *outcome: delivered.append(outcome))
            producer.flush()
        await_true(lambda: watch.kinds() == {"send": 3}, 10)
        assert len(delivered) == 1


def test_a_hook_may_refuse_and_a_failure_is_reported_once(address: str, topic: str) -> None:
    first, second = Watch(), Watch()
    second.before_send = lambda sending: (_ for _ in ()).throw(PermissionError("no"))  # type: ignore[method-assign]
    with Producer(name_server=address, hooks=[first, second]) as producer:
        calls = (
            lambda: producer.send(topic, b"x"),
            lambda: producer.send(topic, b"x", sharding_key="k"),
            lambda: producer.send_async(topic, b"x"),
            lambda: producer.produce(topic, b"x"),
            lambda: producer.send_batch(topic, [b"x"]),
            lambda: producer.send_oneway(topic, b"x"),
            lambda: producer.request(topic, b"x"),
        )
        for refused in calls:
            with pytest.raises(PermissionError):
                refused()
        assert producer.stats().frames == 0
    # A hook that had begun gets the failure.
    assert [type(error) for _, error, _ in first.after] == [PermissionError] * len(calls)
    watch = Watch()
    with Producer(name_server=address, hooks=[watch]) as producer:
        with pytest.raises(RouteError):
            producer.send(topic, b"x", queue=99)
        with pytest.raises(RouteError):
            producer.send_async(topic, b"x", queue=99).result(timeout=10)
        producer.produce(topic, b"x", queue=99)
        with pytest.raises(ConfigError):
            producer.send(topic, b"x", queue=lambda _: 99)
        with pytest.raises(ConfigError):
            producer.send_async(topic, b"x", queue=lambda _: 99)
        with pytest.raises(ConfigError):
            producer.produce(topic, b"x", queue=lambda _: 99)
        producer.flush()
    assert len(watch.after) == len(watch.before) == 6
    assert all(error is not None for _, error, _ in watch.after)


def test_hooks_see_halves_and_how_transactions_end(address: str, topic: str) -> None:
    watch = Watch()
    states = [TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN]
    with TransactionProducer(
        check=lambda _: TransactionState.UNKNOWN, name_server=address, group=topic, hooks=[watch]
    ) as producer:
        for state in states:
            producer.send_in_transaction(topic, b"x", lambda _, state=state: state)  # type: ignore[misc]
    assert watch.kinds() == {"half": 3}
    assert watch.ends == [(state, False) for state in states[:2]]
    assert properties_in(address, topic, 1)[0]["hooked"] == "yes"


def test_hooks_of_the_asynchronous_form_are_the_same(
    address: str, topic: str, replying: str
) -> None:
    watch = Watch()

    async def main() -> None:
        async with aio.TransactionProducer(
            check=lambda _: TransactionState.UNKNOWN,
            name_server=address,
            group=topic,
            hooks=[watch],
        ) as producer:
            await producer.send(topic, b"1")
            await (await producer.produce(topic, b"2", sharding_key="k"))
            await producer.send_batch(topic, [b"3", Message(topic, b"4")])
            await producer.send_oneway(topic, b"5")
            await producer.request(replying, b"?", timeout=10)
            await producer.send_in_transaction(topic, b"6", lambda _: None)
            for call in (producer.send, producer.produce, producer.send_oneway):
                with pytest.raises(PermissionError):
                    await call("forbidden", b"x")
            with pytest.raises(RouteError):
                await producer.send(topic, b"x", queue=99)

    asyncio.run(asyncio.wait_for(main(), 25))
    assert watch.kinds() == {"send": 3, "batch": 1, "oneway": 1, "request": 1, "half": 1}
    assert watch.ends == [(TransactionState.COMMIT, False)]
    assert sum(error is not None for _, error, _ in watch.after) == 1
    assert {found["hooked"] for found in properties_in(address, topic, 6)} == {"yes"}
