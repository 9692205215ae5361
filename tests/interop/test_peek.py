"""What 200052 answers, on our broker and on the real one: see docs/differences.md."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer, SimpleConsumer
from pyrmq.codes import RequestCode, ResponseCode
from tests.interop.ask import ask
from tests.reference import frame, record

if TYPE_CHECKING:
    from pyrmq import PoppedMessage
    from tests.interop.cluster import Cluster

PAIRS = (("ours", "JSON"),)
RARE_PAIRS = (("java-broker", "JSON"),)
FROM_5 = True

SENT = {0: 20, 1: 13}
"""Messages by queue."""

Answer = tuple[int, int | None, int]
"""Code, `restNum`, number of messages."""


LIMITS: dict[tuple[int, int], Answer] = {
    (33, -1): (ResponseCode.SUCCESS, 33, 33),
    (0, -1): (ResponseCode.PULL_NOT_FOUND, 33, 0),
    (-1, -1): (ResponseCode.SYSTEM_ERROR, None, 0),
    (1, -2): (ResponseCode.SUCCESS, 33, 1),
}
"""What the real broker answers to numbers of messages and queues that ours refuses."""


class Peeks:
    """A group that has 33 messages of a topic before it, and peeks at them."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        """Create the topic, the group of its name, and the messages."""
        self.cluster = cluster
        self.name = name
        with Admin(name_server=cluster.namesrv) as admin:
            admin.create_topic(name, queues=len(SENT))
        with self.consumer() as consumer:
            consumer.receive(wait=0.0)
        with Producer(name_server=cluster.namesrv) as producer:
            for queue_id, count in SENT.items():
                for _ in range(count):
                    producer.send(name, "m", queue=queue_id)

    def consumer(self) -> SimpleConsumer:
        """Make a member of the group."""
        consumer = SimpleConsumer(name_server=self.cluster.namesrv, group=self.name)
        consumer.subscribe(self.name)
        return consumer

    def peek(self, most: int, queue_id: int = -1) -> Answer:
        """Send one peek."""
        fields = {
            "consumerGroup": self.name,
            "topic": self.name,
            "queueId": str(queue_id),
            "maxMsgNums": str(most),
        }
        request = frame.Frame(code=RequestCode.PEEK_MESSAGE, version=500, fields=fields)
        answer = ask(self.cluster.broker, request)
        rest = (answer.fields or {}).get("restNum")
        found = record.decode_all(answer.body or b"")
        return answer.code, None if rest is None else int(rest), len(found)


@pytest.fixture
def peeks(cluster: Cluster, name: str) -> Peeks:
    return Peeks(cluster, name)


def test_a_peek_takes_nothing_and_counts_what_the_group_has_before_it(peeks: Peeks) -> None:
    ok = ResponseCode.SUCCESS
    for _ in range(2):
        assert peeks.peek(3) == (ok, 33, 3), "those that it returns are counted, too"
        assert peeks.peek(32) == (ok, 33, 32), "several queues"
        assert peeks.peek(32, 0) == (ok, 20, 20)
        assert peeks.peek(2, 1) == (ok, 13, 2)
    with peeks.consumer() as consumer:
        taken: list[PoppedMessage] = []
        while len(taken) < 30:
            taken += consumer.receive(30 - len(taken), invisible=10.0, wait=5.0)
        assert peeks.peek(32) == (ok, 3, 3), "what is hidden is not counted"
        for message in taken:
            consumer.change_invisible(message, 0)
        deadline = time.monotonic() + 20
        while (back := peeks.peek(32)) != (ok, 33, 32):
            assert time.monotonic() < deadline, f"what comes back is counted: {back}"
            time.sleep(0.1)


@pytest.mark.parametrize(("most", "queue_id"), LIMITS)
def test_a_peek_for_a_wrong_number_of_messages_or_queue_is_refused(
    peeks: Peeks, most: int, queue_id: int
) -> None:
    is_real = peeks.cluster.kind != "ours"
    refused = (ResponseCode.INVALID_PARAMETER, None, 0)
    assert peeks.peek(most, queue_id) == (LIMITS[most, queue_id] if is_real else refused)
