"""A thousand calls that fail are a few lines of the log, and no failure is left out of a count."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_aio_push import until
from tests.e2e.test_push import make
from tests.e2e.test_push_pop import switch
from tests.e2e.wire import await_true

from pyrmq import DeadLetter, Producer, PullConsumer, PushConsumer, aio
from pyrmq.consumer import ConsumeHook

if TYPE_CHECKING:
    from typing import Literal

    from pyrmq.consumer import Consuming

COUNT = 1000
WORDS = ("a listener failed", "dead letter", "does not fit", "a hook raised")


def counted(caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    """Add up the failures that the lines stand for, by their text."""
    found = dict.fromkeys(WORDS, 0)
    for record in caplog.records:
        text = record.getMessage()
        # A body that does not fit is a dead letter, too.
        for word in (one for one in WORDS if one in text):
            more = re.search(r"; (\d+) more since the last such line$", text)
            found[word] += 1 if more is None else int(more[1])
    return found


class Counting(ConsumeHook):
    """Counts outcomes, and fails."""

    def __init__(self) -> None:
        self.failed = 0

    def after_process(self, consuming: Consuming, error: BaseException | None, *_: Any) -> None:  # noqa: ANN401
        """Count errors."""
        self.failed += len(consuming.messages) if error is not None else 0
        raise RuntimeError("a hook that always fails")


def fail(order: dict[str, int]) -> None:
    """Fail in one of two lines."""
    if order["number"] % 2:
        raise DeadLetter(f"no customer {order['number']}")
    raise ValueError(f"no stock of {order['number']}")


@pytest.mark.parametrize("mode", ["pull", "pop"])
@pytest.mark.parametrize("form", ["threads", "lists", "aio"])
def test_failures_of_each_message_are_few_lines_whose_counts_are_right(
    address: str,
    topic: str,
    form: str,
    mode: Literal["pull", "pop"],
    caplog: pytest.LogCaptureFixture,
) -> None:
    make(address, topic, [], queues=2)
    with Producer(name_server=address) as producer:
        texts = [f'{{"number": {number}}}' for number in range(COUNT)]
        bodies = [*texts[: COUNT - 100], *["no order"] * 100]
        producer.send_batch(topic, bodies)
    group, hook = f"lines-{topic}", Counting()
    switch(address, group, topic, mode)
    options: dict[str, Any] = {"name_server": address, "group": group, "hooks": [hook]}

    def has_ended(consumer: PushConsumer | aio.PushConsumer) -> bool:
        stats = consumer.stats()
        return stats.later + stats.dead == COUNT

    async def listen() -> Any:  # noqa: ANN401
        async def handle(order: dict[str, int]) -> None:
            fail(order)

        consumer = aio.PushConsumer(**options)
        consumer.subscribe(topic, handle)
        async with consumer:
            await until(lambda: has_ended(consumer))
            return consumer.stats()

    def handle_list(orders: list[dict[str, int]]) -> None:
        fail(orders[0])

    with caplog.at_level(logging.ERROR, "pyrmq.consumer"):
        if form == "aio":
            stats = asyncio.run(listen())
        else:
            consumer = PushConsumer(**options, consume_batch=4 if form == "lists" else 1)
            consumer.subscribe(topic, handle_list if form == "lists" else fail)
            with consumer:
                await_true(lambda: has_ended(consumer), 30)
                stats = consumer.stats()
    lines = [one for one in caplog.records if one.name == "pyrmq.consumer"]
    found = counted(caplog)
    # Four kinds: of each the first, one at the end, and one where the machine is slow.
    assert len(lines) <= 12, [one.getMessage() for one in lines]
    assert sum(one.exc_info is not None for one in lines) == 2
    assert found["does not fit"] == stats.unfit == 100
    assert hook.failed == COUNT
    if form != "lists":
        assert found["a listener failed"] == stats.later == 450
        assert found["dead letter"] == stats.dead == 550
        assert found["a hook raised"] == COUNT
    else:
        # A call has up to four messages.
        assert found["a listener failed"] >= stats.later / 4
        assert found["dead letter"] - 100 >= (stats.dead - 100) / 4
        assert found["a hook raised"] == sum(found[one] for one in WORDS[:2])


def test_calls_past_their_limit_are_few_lines(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, [str(number) for number in range(12)], queues=1)
    release = threading.Event()
    consumer = PushConsumer(name_server=address, group=f"g-{topic}", threads=12, time_limit=0.2)

    def hang(_: object) -> None:
        release.wait(20)

    consumer.subscribe(topic, hang)
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"), consumer:
        await_true(lambda: consumer.stats().timed_out == 12, 15)
        release.set()
    lines = [one.getMessage() for one in caplog.records if "has not returned" in one.getMessage()]
    assert "release.wait(20)" in lines[0], "the first has the stack"
    assert "Its stack" not in "".join(lines[1:])
    more = re.search(r"; (\d+) more since the last such line$", lines[-1])
    assert more is not None
    assert (len(lines), int(more[1])) == (2, 11)


def test_calls_that_are_cancelled_at_their_limit_are_few_lines(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, [str(number) for number in range(12)], queues=1)

    async def hang(_: object) -> None:
        await asyncio.sleep(20)

    async def listen() -> None:
        consumer = aio.PushConsumer(name_server=address, group=f"g-{topic}", time_limit=0.2)
        consumer.subscribe(topic, hang)
        async with consumer:
            await until(lambda: consumer.stats().later == 12)
            assert consumer.stats().timed_out == 12

    with caplog.at_level(logging.ERROR, "pyrmq.consumer"):
        asyncio.run(listen())
    assert counted(caplog)["a listener failed"] == 12
    assert sum("a listener failed" in one.getMessage() for one in caplog.records) == 2
    assert "await asyncio.sleep(20)" in caplog.text, "the first has the stack"


def test_a_polled_consumer_reports_the_failures_of_its_hooks_when_it_is_closed(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(ConsumeHook):
        def after_receive(self, consuming: Consuming) -> None:
            raise RuntimeError(consuming.topic)

    make(address, topic, [str(number) for number in range(20)])
    with PullConsumer(name_server=address, group=f"g-{topic}", hooks=[Failing()]) as consumer:
        consumer.subscribe(topic)
        for _ in range(20):
            assert len(consumer.poll(1, timeout=10)) == 1
    assert counted(caplog)["a hook raised"] == 20
    assert len([one for one in caplog.records if "a hook raised" in one.getMessage()]) <= 4
