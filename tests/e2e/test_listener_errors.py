"""Consumers continue after errors around a listener: it returns no outcome, or logging fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_aio_push import until
from tests.e2e.test_push import make
from tests.e2e.test_push_pop import switch
from tests.e2e.wire import await_true

from pyrmq import ConfigError, Producer, PushConsumer, ReconsumeLater, aio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

MODES = pytest.mark.parametrize("mode", ["pull", "pop"])


class Strange(ReconsumeLater):
    """An outcome that the native consumer refuses, as a subclass of an application may."""

    @property
    def failure(self) -> Any:  # noqa: ANN401
        """Return no level."""
        return ("later", "soon")

    @failure.setter
    def failure(self, _: object) -> None:
        pass


def fail_with_a_float() -> None:
    raise ReconsumeLater(delay_level=1.0)  # type: ignore[arg-type]


def fail_strangely() -> None:
    raise Strange


def fail() -> None:
    raise ValueError("no such order")


@contextmanager
def refusing_logs(words: str) -> Iterator[None]:
    """Add a handler to the consumers' log that fails for records with these words."""

    class Refusing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if words in record.getMessage():
                raise OSError("the log's server is away")

    log, handler = logging.getLogger("pyrmq.consumer"), Refusing()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def prepare(address: str, topic: str, mode: Literal["pull", "pop"]) -> str:
    """Make a topic with ten messages; return a group for it."""
    make(address, topic, [str(number) for number in range(10)], queues=2)
    group = f"errors-{topic}"
    switch(address, group, topic, mode)
    return group


def ended(consumer: PushConsumer | aio.PushConsumer) -> int:
    """Return of how many messages the outcome is counted."""
    stats = consumer.stats()
    return int(stats["done"]) + int(stats["later"])


@MODES
@pytest.mark.parametrize("failure", [fail_with_a_float, fail_strangely, fail])
def test_threads_go_on_after_errors_of_outcomes_and_logs(
    address: str, topic: str, mode: Literal["pull", "pop"], failure: Callable[[], None]
) -> None:
    group = prepare(address, topic, mode)
    seen: Counter[str] = Counter()
    consumer = PushConsumer(name_server=address, group=group, threads=2)

    @consumer.listener(topic)
    def handle(body: str) -> None:
        seen[body] += 1
        if body in {"0", "1", "2"}:
            failure()

    with refusing_logs("failed for" if failure is fail else "nothing"), consumer:
        await_true(lambda: len(seen) == 10, 15)
        with Producer(name_server=address) as producer:
            for number in range(10, 20):
                producer.send(topic, str(number))
        await_true(lambda: len(seen) == 20, 15)
        await_true(lambda: ended(consumer) == 20, 15)
        stats = consumer.stats()
    assert stats["done"] == 17
    assert stats["later"] == 3


@pytest.mark.parametrize("order", ["queue", "key"])
def test_an_order_is_kept_after_an_outcome_that_is_none(
    address: str, topic: str, order: Literal["queue", "key"]
) -> None:
    make(address, topic, [], queues=1)
    with Producer(name_server=address) as producer:
        for number in range(20):
            producer.send(topic, str(number), sharding_key="one")
    calls: list[int] = []
    consumer = PushConsumer(
        name_server=address, group=f"errors-{topic}", order=order, suspend_pause=0.05
    )

    @consumer.listener(topic)
    def handle(body: str) -> None:
        calls.append(int(body))
        if body in {"5", "12"} and calls.count(int(body)) == 1:
            raise Strange

    with consumer:
        await_true(lambda: consumer.stats()["done"] == 20, 15)
    assert calls == sorted([*range(20), 5, 12])


@MODES
def test_tasks_go_on_after_errors_of_outcomes_and_logs(
    address: str, topic: str, mode: Literal["pull", "pop"]
) -> None:
    group = prepare(address, topic, mode)
    seen: Counter[str] = Counter()

    async def handle(body: str) -> None:
        seen[body] += 1
        if body in {"0", "1", "2"}:
            (fail_with_a_float, fail_strangely, fail)[int(body)]()

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=address, group=group, tasks=2)
        consumer.subscribe(topic, handle)
        async with consumer:
            await until(lambda: len(seen) == 10)
            await until(lambda: ended(consumer) == 10)
            stats = consumer.stats()
        assert (stats["done"], stats["later"]) == (7, 3)

    with refusing_logs("fail"):
        asyncio.run(main())


def test_the_watch_goes_on_after_an_error_of_the_log(address: str, topic: str) -> None:
    make(address, topic, ["hangs"], queues=1)
    release = threading.Event()
    consumer = PushConsumer(name_server=address, group=f"g-{topic}", threads=2, time_limit=0.2)
    consumer.subscribe(topic, lambda _: release.wait(20))
    with refusing_logs("has not returned"), consumer:
        await_true(lambda: consumer.stats()["timed_out"] == 1, 15)
        with Producer(name_server=address) as producer:
            producer.send(topic, "hangs, too")
        await_true(lambda: consumer.stats()["timed_out"] == 2, 15)
        release.set()


def test_a_delay_level_is_a_whole_number() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        fail_with_a_float()
