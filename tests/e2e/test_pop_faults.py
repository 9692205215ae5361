"""Consumers by POP while brokers are killed and clocks jump."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.clock import clock_of_the_servers
from tests.e2e.wire import Connection, ask, await_true

from pyrmq import Admin, PoppedMessage, Producer, QueueId, SimpleConsumer
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 86_400


def receive(
    consumer: SimpleConsumer, count: int, invisible: float = 60.0, seconds: float = 30.0
) -> list[PoppedMessage]:
    """Receive `count` messages, or fewer if no more come."""
    found: list[PoppedMessage] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.receive(count - len(found), invisible=invisible, wait=1.0)
    return found


@pytest.mark.faults
@pytest.mark.timeout(60)
def test_an_ordered_group_misses_nothing_after_a_broker_was_killed() -> None:
    """Also when what is acknowledged first afterwards is not the first that is open."""
    with cluster(brokers=2, processes=True) as rocketmq:
        address = rocketmq.name_server
        with Admin(name_server=address) as admin:
            admin.create_topic("kills", queues=1)
        with Producer(name_server=address) as producer:
            for number in range(6):
                producer.send("kills", str(number), queue=QueueId("kills", "broker-a", 0))
        with SimpleConsumer(name_server=address, group="order", order="queue") as consumer:
            consumer.subscribe("kills")
            first = receive(consumer, 3)
            assert [one.body for one in first] == [b"0", b"1", b"2"]
            consumer.ack(first)
            held = receive(consumer, 3)
            assert [one.body for one in held] == [b"3", b"4", b"5"]
            rocketmq.brokers[0].kill()
            rocketmq.brokers[0].start()
            consumer.ack(held[1])
        with SimpleConsumer(name_server=address, group="order", order="queue") as consumer:
            consumer.subscribe("kills")
            seen: list[int] = []
            # What was acknowledged since the offsets were written may come again, in order.
            while not seen or seen[-1] < 5:
                (message,) = receive(consumer, 1)
                seen.append(int(message.body))
                consumer.ack(message)
            assert seen == sorted(set(seen))
            assert {3, 5} <= {*seen}
            assert not consumer.receive(wait=1.0)


@pytest.mark.timeout(90)
def test_popped_messages_outlive_a_clock_that_jumps_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early or late by what the clock has jumped, but none is lost and no other comes again."""
    with (
        clock_of_the_servers(tmp_path, monkeypatch) as move,
        cluster(brokers=2, processes=True) as rocketmq,
    ):
        monkeypatch.delenv("LD_PRELOAD")  # The clients keep the real time.
        address = rocketmq.name_server
        with Admin(name_server=address) as admin:
            admin.create_topic("jumps", queues=2)
        acked: set[bytes] = set()
        sent: set[bytes] = set()
        with (
            Producer(name_server=address) as producer,
            SimpleConsumer(name_server=address, group="clock") as consumer,
        ):
            consumer.subscribe("jumps")
            for step, seconds in (("now", 0), ("tomorrow", DAY_S), ("yesterday", -DAY_S)):
                move(seconds)
                bodies = {f"{step} {number}".encode() for number in range(200)}
                for body in bodies:
                    producer.send("jumps", body)
                sent |= bodies
                fresh: list[PoppedMessage] = []
                while not bodies <= {one.body for one in fresh}:
                    found = consumer.receive(32, invisible=60.0, wait=2.0)
                    assert not acked & {one.body for one in found}, "acknowledged, and came again"
                    fresh += found
                done = [one for one in fresh if one.body.endswith((b"0", b"1", b"2"))]
                consumer.ack(done)
                acked |= {one.body for one in done}
            # Two days later every time has passed.
            move(2 * DAY_S)
            deadline = time.monotonic() + 30.0
            while acked < sent:
                found = consumer.receive(32, invisible=60.0, wait=2.0)
                assert found or time.monotonic() < deadline, f"{sent - acked} never came"
                assert not acked & {one.body for one in found}, "acknowledged, and came again"
                consumer.ack(found)
                acked |= {one.body for one in found}
            assert not consumer.receive(wait=1.0)


@pytest.mark.parametrize("days", [-1, 1])
def test_a_pop_that_waits_is_answered_in_time_although_the_clock_jumps_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Later it would take a message for a client that does not wait any more."""
    with (
        clock_of_the_servers(tmp_path, monkeypatch) as move,
        cluster(processes=True) as rocketmq,
    ):
        monkeypatch.delenv("LD_PRELOAD")
        with Admin(name_server=rocketmq.name_server) as admin:
            admin.create_topic("waits", queues=1)
        address = rocketmq.brokers[0].address
        queue = {"consumerGroup": "waiting", "topic": "waits", "queueId": "0"}
        numbers = {"maxMsgNums": "1", "invisibleTime": "60000", "bornTime": "0", "initMode": "0"}

        def is_held() -> bool:
            answer = ask(address, RequestCode.POLLING_INFO, queue)
            return (answer.fields or {}).get("pollingNum") == "1"

        with Connection(address) as connection:
            fields = {**queue, **numbers, "pollTime": "1500"}
            began = time.monotonic()
            connection.send(RequestCode.POP_MESSAGE, fields)
            await_true(is_held)
            move(days * DAY_S)
            assert connection.read().code == ResponseCode.POLLING_TIMEOUT
            assert 1.4 < time.monotonic() - began < 5.0


def test_members_keep_the_queues_of_both_brokers_while_name_servers_are_down() -> None:
    with cluster(brokers=2, name_servers=2) as rocketmq:
        with Admin(name_server=rocketmq.name_server) as admin:
            admin.create_topic("shares", queues=1)
        group = {
            "groupName": "members",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [],
        }
        beat = {"clientID": "one", "consumerDataSet": [group], "producerDataSet": []}
        request = {
            "clientId": "one",
            "consumerGroup": "members",
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": "shares",
        }
        with Connection(rocketmq.brokers[0].address) as connection:
            connection.ask(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())

            def brokers() -> list[str]:
                body = json.dumps(request).encode()
                answer = connection.ask(RequestCode.QUERY_ASSIGNMENT, body=body).body
                rows = json.loads(answer or b"{}").get("messageQueueAssignments", [])
                return sorted(row["messageQueue"]["brokerName"] for row in rows)

            assert brokers() == ["broker-a", "broker-b"]
            rocketmq.name_servers[0].stop()
            for _ in range(4):
                assert brokers() == ["broker-a", "broker-b"], "the other name server knows"
            rocketmq.name_servers[1].stop()
            assert brokers() == [], "a member keeps what it has"
