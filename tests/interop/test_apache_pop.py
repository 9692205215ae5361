"""The scenarios of Apache's integration tests of POP, with the real client of 5.5.0, on our broker.

A test names the class of Apache's module `test` that has its scenario; docs/compat.md has a table.
``--rocketmq-control`` runs them on a real broker.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver, Row

PAIRS = (("ours", "JSON"),)
FROM_5 = True

INVISIBLE_MS = 2000
BACK_S = 5.0
"""Time after its pop within which both brokers have delivered a message again."""


class Popper:
    """One group's requests for one topic.

    Args:
        driver: The Java client.
        cluster: The servers.
        topic: A topic of theirs.
        order: The group keeps the order of the queue.
    """

    def __init__(
        self, driver: Driver, cluster: Cluster, topic: str, *, order: bool = False
    ) -> None:
        self.driver = driver
        self.cluster = cluster
        self.topic = topic
        self.group = f"{topic}-group"
        self.order = order
        where = f"-b {cluster.broker} -n {cluster.namesrv}"
        driver.mqadmin(f"updateSubGroup {where} -g {self.group} -o {str(order).lower()}")

    def call(self, what: str, **options: object) -> Any:  # noqa: ANN401 (JSON)
        """Send one request."""
        place = {"broker": self.cluster.broker, "brokerName": self.cluster.broker_name}
        names = {"topic": self.topic, "group": self.group, "order": self.order}
        return self.driver.call(f"pop.{what}", **place, **names, **options)

    def pop(
        self, count: int = 32, invisible_ms: int = INVISIBLE_MS, **options: object
    ) -> list[Row]:
        """Pop once."""
        found = self.call("pop", max=count, invisible=invisible_ms, **options)
        assert found["status"] == ("FOUND" if found["messages"] else "POLLING_NOT_FOUND")
        rows: list[Row] = found["messages"]
        return rows

    def pop_all(self, total: int, most: int = 32, **options: Any) -> list[Row]:  # noqa: ANN401
        """Pop up to `most` at a time until `total` came."""
        found: list[Row] = []
        until = time.monotonic() + 20
        while len(found) < total and time.monotonic() < until:
            found += self.pop(most, poll=500, **options)
        assert len(found) == total
        return found

    def ack(self, row: Row) -> None:
        """Acknowledge one message."""
        assert self.call("ack", handle=handle(row))["status"] == "OK"

    def send(self, count: int, prefix: str = "m", **options: object) -> None:
        """Send to the first queue."""
        with self.driver.producer(self.cluster.namesrv) as producer:
            self.driver.send(
                producer,
                self.topic,
                count=count,
                prefix=prefix,
                broker=self.cluster.broker_name,
                queue=0,
                **options,
            )


@pytest.fixture
def popper(driver: Driver, cluster: Cluster, name: str) -> Callable[..., Popper]:
    """Make a group that pops a new topic."""

    def make(*, queues: int = 1, order: bool = False) -> Popper:
        driver.call(
            "admin.createTopic",
            namesrv=cluster.namesrv,
            topic=name,
            broker=cluster.broker,
            queues=queues,
        )
        return Popper(driver, cluster, name, order=order)

    return make


def handle(row: Row) -> str:
    """The receipt handle of a message."""
    return str(row["properties"]["POP_CK"])


def body(row: Row) -> str:
    """The body of a message."""
    return base64.b64decode(row["body"]).decode()


def times(rows: list[Row]) -> list[tuple[str, int]]:
    """Bodies, and how often each message was delivered before."""
    return [(body(row), row["reconsumeTimes"]) for row in rows]


@pytest.mark.nightly
@pytest.mark.parametrize("order", [False, True], ids=["normally", "orderly"])
def test_a_batch_acknowledges_first_and_second_deliveries(
    popper: Callable[..., Popper], *, order: bool
) -> None:
    """BatchAckIT."""
    group = popper(queues=8, order=order)
    group.send(10)
    first = group.pop_all(10)
    time.sleep(BACK_S)
    group.send(20, "n")
    rows = group.pop_all(30)
    assert {row["msgId"] for row in rows} > {row["msgId"] for row in first}
    done = group.call("batchAck", handles="\n".join(handle(row) for row in rows))
    assert done["status"] == "OK"
    time.sleep(BACK_S)
    assert group.pop() == []


def test_a_notification_sees_a_message_that_the_same_attempt_has(
    popper: Callable[..., Popper],
) -> None:
    """NotificationIT."""
    group = popper(queues=8, order=True)
    for name in ("first", "second"):
        group.call("notify", id=name, attempt="one", poll=3000)
    group.send(1)
    assert group.call("notified", id="first")["has"]
    assert len(group.pop(1, 10_000, attempt="one")) == 1
    assert group.call("notified", id="second")["has"]
    group.call("notify", id="third", attempt="two", poll=500)
    assert not group.call("notified", id="third")["has"], "the queue is closed for other attempts"


@pytest.mark.nightly
def test_a_compressed_message_comes_again_as_it_was_stored(popper: Callable[..., Popper]) -> None:
    """PopBigMessageIT."""
    group = popper(queues=8)
    size = 3 << 20
    group.send(1, size=size)
    (first,) = group.pop_all(1, most=1, raw=True)
    (again,) = group.pop_all(1, most=1, raw=True)
    assert again["reconsumeTimes"] == 1
    assert first["bodyLength"] < size
    same = ("msgId", "bodyLength", "bodyMd5", "sysFlag")
    assert [again[key] for key in same] == [first[key] for key in same]
    (read,) = group.pop_all(1, most=1)
    assert read["bodyLength"] == size


def test_a_popped_message_that_is_sent_on_gets_a_handle_of_its_own(
    popper: Callable[..., Popper], driver: Driver, cluster: Cluster
) -> None:
    """PopMessageAndForwardingIT: with a second topic in place of a second broker."""
    group = popper(queues=8)
    to = f"{group.topic}-to"
    driver.call("admin.createTopic", namesrv=cluster.namesrv, topic=to, broker=cluster.broker)
    group.send(1)
    first = group.call("forward", namesrv=cluster.namesrv, to=to, poll=3000)
    other = Popper(driver, cluster, to)
    (second,) = other.pop_all(1)
    assert second["msgId"] == first["msgId"]
    assert handle(second) != handle(first)
    other.ack(second)


def test_messages_come_in_order_as_each_is_acknowledged(popper: Callable[..., Popper]) -> None:
    """PopOrderlyIT.testPopOrderly."""
    group = popper(order=True)
    group.send(10)
    seen: list[Row] = []
    for _ in range(10):
        seen += group.pop_all(1, most=1)
        assert group.pop(1) == [], "the queue is closed"
        group.ack(seen[-1])
    assert times(seen) == [(f"m-{number}", 0) for number in range(10)]


def test_unacknowledged_messages_come_again_in_order(popper: Callable[..., Popper]) -> None:
    """PopOrderlyIT.testPopOrderlyThenNoAck."""
    group = popper(order=True)
    group.send(10)
    first = group.pop_all(5, most=5)
    second = group.pop_all(5, most=5)
    for number, rows in enumerate((first, second)):
        assert times(rows) == [(f"m-{at}", number) for at in range(5)]


@pytest.mark.nightly
def test_a_message_that_is_hidden_for_longer_comes_once_more(popper: Callable[..., Popper]) -> None:
    """PopOrderlyIT.testPopMessageOrderlyThenChangeInvisibleTime."""
    group = popper(order=True)
    group.send(1)
    (first,) = group.pop_all(1)
    hidden_at = time.monotonic()
    hidden = group.call("hide", handle=handle(first), invisible=INVISIBLE_MS + 1000)
    assert hidden["status"] == "OK"
    (second,) = group.pop_all(1)
    assert time.monotonic() - hidden_at > 2.9
    assert times([second]) == [("m-0", 1)]
    group.ack(second)
    time.sleep(INVISIBLE_MS / 1000 + 0.5)
    assert group.pop() == []


def test_a_hidden_message_in_the_middle_brings_the_later_one_back(
    popper: Callable[..., Popper],
) -> None:
    """PopOrderlyIT, ChangeInvisibleTimeMidMsgOrderlyIT: a message in the middle is hidden."""
    group = popper(order=True)
    group.send(4)
    first, middle, last = group.pop_all(3, most=3, invisible_ms=5000)
    group.ack(first)
    assert group.call("hide", handle=handle(middle), invisible=1500)["status"] == "OK"
    group.ack(last)
    again = group.pop_all(3, most=3)
    assert times(again) == [("m-1", 1), ("m-2", 1), ("m-3", 0)]


@pytest.mark.nightly
def test_a_repeated_attempt_gets_the_messages_again(popper: Callable[..., Popper]) -> None:
    """PopOrderlyIT.testReentrant."""
    group = popper(order=True)
    group.send(1)
    seen: list[Row] = []
    for attempt in (None, "one", "one", "two", "two", None):
        seen += group.pop_all(1, attempt=attempt, invisible_ms=INVISIBLE_MS)
    assert [row["reconsumeTimes"] for row in seen] == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("order", [False, True], ids=["normally", "orderly"])
def test_a_reset_takes_effect_with_the_next_pop(
    popper: Callable[..., Popper], cluster: Cluster, *, order: bool
) -> None:
    """OffsetResetForPopIT: after a pop, old handles after a reset, a reset that skips."""
    group = popper(order=order)
    group.send(10)
    before = group.pop_all(10, invisible_ms=60_000)
    for offset in (4, 2, 6):
        group.call("reset", namesrv=cluster.namesrv, offset=offset)
        rows = group.pop_all(10 - offset, invisible_ms=60_000)
        assert [row["queueOffset"] for row in rows] == list(range(offset, 10))
        for row in before:
            group.call("ack", handle=handle(row))
        assert group.pop() == [], "handles from before the reset changed something"
        before = rows
    for row in before:
        group.ack(row)
    group.send(1, "later")
    (last,) = group.pop_all(1)
    assert last["queueOffset"] == 10


@pytest.mark.nightly
@pytest.mark.parametrize(("order", "steps"), [(False, [5]), (True, [5]), (True, [3, 5])])
def test_resets_while_messages_are_popped_and_acknowledged(
    popper: Callable[..., Popper], cluster: Cluster, steps: list[int], *, order: bool
) -> None:
    """OffsetResetForPopIT: `testReset[Future]OffsetWhilePop...`, once and several times."""
    group = popper(order=order)
    group.send(10)
    for first, offsets in ((1, steps), (9, [3])):
        seen: list[int] = []
        group.call("reset", namesrv=cluster.namesrv, offset=0)
        while len(seen) < first:
            (row,) = group.pop_all(1, most=1, invisible_ms=60_000)
            group.ack(row)
            seen.append(row["queueOffset"])
        for offset in offsets:
            group.call("reset", namesrv=cluster.namesrv, offset=offset)
        while rows := group.pop(1, 60_000, poll=500):
            group.ack(rows[0])
            seen.append(rows[0]["queueOffset"])
        assert seen == [*range(first), *range(offsets[-1], 10)]


@pytest.mark.nightly
def test_a_listener_gets_a_refused_message_until_it_takes_it(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """PopConsumerRetryIT, PopSubCheckIT: handles, one more delivery for each refusal."""
    group = f"{topic}-group"
    mode = driver.mqadmin(
        f"setConsumeMode -b {cluster.broker} -n {cluster.namesrv} -t {topic} -g {group} -m POP -q 8"
    )
    assert "success" in mode, mode
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=1, broker=cluster.broker_name)
    with driver.push(
        cluster.namesrv, topic, group=group, pop=True, later=True, threads=1
    ) as consumer:
        first, second = driver.pushed(consumer, 2, timeout=60)
    assert [first["reconsumeTimes"], second["reconsumeTimes"]] == [0, 1]
    assert handle(first) != handle(second)
