"""Our consumers with a real master and slave: hints are followed, the slave takes over."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer, PullConsumer, PushConsumer
from pyrmq._admin.requests import body_of
from pyrmq.codes import RequestCode
from pyrmq.errors import CommitError, RmqError
from tests.interop import artifacts
from tests.interop.rocketmq import JavaBroker, JavaNameServer
from tests.spark.test_choices import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq.message import ReceivedMessage

# A slave asks its master for topics a minute after its start.
pytestmark = [pytest.mark.interop, pytest.mark.nightly, pytest.mark.timeout(300)]

VERSION = "5.5.0"
TOPICS = ("hinted", "orphaned")
COUNT = 2000
BODY = bytes(2048)
AHEAD = 65_536
"""Less than what is stored, so that a consumer has to send more requests."""
AT_ONCE = 8
"""Messages of one answer to a consumer that is behind (``maxTransferCountOnMessageInDisk``)."""


class Pair:
    """A master, its slave, which has all that was stored, and their name server."""

    def __init__(self, names: JavaNameServer, master: JavaBroker, slave: JavaBroker) -> None:
        self.names, self.master, self.slave = names, master, slave
        self.admin = Admin(name_server=names.address)

    def store(self, topic: str) -> None:
        """Store messages in one queue."""
        self.admin.create_topic(topic, queues=1)
        with Producer(name_server=self.names.address) as producer:
            for first in range(0, COUNT, 100):
                bodies = [b"%d " % number + BODY for number in range(first, first + 100)]
                producer.send_batch(topic, bodies)

    def of_slave(self, topic: str) -> tuple[int, int]:
        """Return where the slave's queue begins and ends."""
        try:
            answer = self.admin._request(
                self.slave.address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}
            )
        except RmqError:
            # It has not heard of the topic yet.
            return -1, -1
        ((queue),) = body_of(answer)["offsetTable"].values()
        return int(queue["minOffset"]), int(queue["maxOffset"])

    def read_of_slave(self) -> int:
        """Return how many messages the slave has given to consumers."""
        answer = self.admin._request(self.slave.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(body_of(answer)["table"]["msgGetTotalTodayNow"])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    artifacts.require_java()
    options: dict[str, object] = {
        # A new slave gets its master's last segment only: it is to have all.
        "mappedFileSizeCommitLog": 64 * 1024 * 1024,
        "slaveReadEnable": "true",
        # A reader with any lag is sent to the slave.
        "accessMessageInMemoryMaxRatio": 0,
    }
    as_slave = {**options, "brokerRole": "SLAVE", "brokerId": 1}
    with (
        JavaNameServer(VERSION) as names,
        JavaBroker(VERSION, names.address, properties=options) as master,
        JavaBroker(VERSION, names.address, properties=as_slave) as slave,
    ):
        found = Pair(names, master, slave)
        await_true(lambda: bool(found.admin.cluster()), 30)
        for topic in TOPICS:
            found.store(topic)
        await_true(lambda: all(found.of_slave(topic) == (0, COUNT) for topic in TOPICS), 90)
        yield found
        found.admin.close()


def await_true(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not become true"
        time.sleep(0.1)


def take(consumer: PullConsumer, count: int, at_once: int = 1024) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages have come"
        found += consumer.poll(at_once, timeout=1.0)
    return found


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body.split(b" ", 1)[0]) for message in messages]


def test_a_consumer_that_is_behind_reads_where_the_master_says(pair: Pair) -> None:
    (topic, _) = TOPICS
    before = pair.read_of_slave()
    with PullConsumer(
        name_server=pair.names.address, group="hinted", ahead_bytes=AHEAD
    ) as consumer:
        consumer.subscribe(topic)
        found = take(consumer, COUNT)
    assert numbers(found) == list(range(COUNT))
    # The first answer is the master's, and so may be the last.
    await_true(lambda: pair.read_of_slave() - before >= COUNT - 2 * AT_ONCE, 10)


def test_tables_are_read_from_the_replica_that_an_option_names(pair: Pair) -> None:
    (topic, _) = TOPICS
    given = {"nameServer": pair.names.address, "topic": topic}

    def read_from(choice: str) -> list[int]:
        rows = read({**given, "readFrom": choice})
        return sorted(int(bytes(body).split(b" ", 1)[0]) for (body,) in rows)  # type: ignore[call-overload]

    before = pair.read_of_slave()
    assert read_from("master") == list(range(COUNT))
    assert pair.read_of_slave() == before
    assert read_from("slave") == list(range(COUNT))
    await_true(lambda: pair.read_of_slave() - before >= COUNT, 10)


def test_consumers_go_on_at_the_slave_when_the_master_is_killed(pair: Pair) -> None:
    """Comes last: the master stays away."""
    (_, topic) = TOPICS
    pushed: list[ReceivedMessage] = []
    may_go_on = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        pushed.append(message)
        if len(pushed) > 5:
            may_go_on.wait(120)

    pusher = PushConsumer(
        name_server=pair.names.address, group="pushed", threads=1, ahead_bytes=AHEAD
    )
    pusher.subscribe(topic, handle)
    with (
        # Positions cannot be committed before the route is known to have no master any more.
        suppress(CommitError),
        pusher,
        PullConsumer(name_server=pair.names.address, group="polled", ahead_bytes=AHEAD) as consumer,
    ):
        consumer.subscribe(topic)
        polled = take(consumer, 5, at_once=5)
        await_true(lambda: len(pushed) > 5, 10)
        pair.master.kill()
        may_go_on.set()
        polled += take(consumer, COUNT - len(polled))
        await_true(lambda: len(pushed) >= COUNT, 60)
    assert numbers(polled) == list(range(COUNT))
    assert sorted(set(numbers(pushed))) == list(range(COUNT))
