"""Our listeners pop on the real broker, switched by our Admin."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, DeadLetter, PullConsumer, PushConsumer, ReconsumeLater
from tests.interop.test_listeners import send, until

if TYPE_CHECKING:
    from pyrmq import ReceivedMessage
    from tests.interop.cluster import Cluster

PAIRS = (("java", "JSON"),)
FROM_5 = True


@pytest.mark.timeout(180)
def test_a_group_that_pops_from_the_real_broker_and_back(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    tries: dict[str, list[int]] = defaultdict(list)

    def handle(message: ReceivedMessage) -> None:
        assert message.topic == topic
        body = message.body.decode()
        tries[body].append(message.reconsume_times)
        if body == "0" and len(tries[body]) == 1:
            raise ReconsumeLater(delay_level=2)
        if body == "1":
            raise DeadLetter("never")
        if body == "3":
            raise ReconsumeLater(delay_level=1)

    send(cluster, topic, 4)
    with Admin(name_server=cluster.namesrv) as admin:
        admin.set_consume_mode(group, topic, "pop")
        assert {one.mode for one in admin.consume_modes(group, topic).values()} == {"pop"}
        consumer = PushConsumer(
            name_server=cluster.namesrv, group=group, max_tries=1, invisible=20.0, rebalance=0.5
        )
        consumer.subscribe(topic, handle)
        with consumer:
            until(lambda: len(tries) == 4)
            assert {queue.queue_id for queue in consumer.assignment() if queue.topic == topic} == {
                -1
            }
            until(lambda: len(tries["0"]) == 2 and len(tries["3"]) == 2)
            until(lambda: consumer.stats()["dead"] == 2)
            send(cluster, topic, 20, start=4)
            until(lambda: len(tries) == 24)
            admin.set_consume_mode(group, topic, "pull")
            until(lambda: all(queue.queue_id >= 0 for queue in consumer.assignment()))
            send(cluster, topic, 20, start=24)
            until(lambda: len(tries) == 44)
    assert tries["0"] == [0, 1]
    assert tries["1"] == [0]
    assert tries["3"] == [0, 1]
    with PullConsumer(name_server=cluster.namesrv, group=f"{group}-looker") as looker:
        looker.subscribe(f"%DLQ%{group}")
        dead: set[bytes] = set()
        while len(dead) < 2:
            dead |= {one.body for one in looker.poll(8, timeout=20)}
    assert dead == {b"1", b"3"}
