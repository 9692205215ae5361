"""Injected faults of a cluster: their effect on a client, and their end."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer, QueueId, _core
from pyrmq.codes import RequestCode
from pyrmq.errors import (
    BrokerBusy,
    BrokerError,
    ConfigError,
    ConnectionLost,
    RmqError,
    SendTimeout,
)
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "orders"
LATE = 0.3


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    with cluster(brokers=2, name_servers=2, faults=True) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(TOPIC, queues=1)
        yield running


@pytest.fixture
def faulty(two: Cluster) -> Iterator[Cluster]:
    yield two
    for member in (*two.brokers, *two.name_servers):
        member.network.heal()


@pytest.fixture
def send(faulty: Cluster) -> Iterator[Callable[..., float]]:
    """Return a function that sends one message to a broker once and returns the seconds it took."""
    with Producer(name_server=faulty.name_server, retries=0, send_timeout=10.0) as producer:

        def one(broker: int, body: bytes = b"coffee", timeout: float | None = None) -> float:
            queue = QueueId(TOPIC, faulty.brokers[broker].name, 0)
            began = time.monotonic()
            producer.send(TOPIC, body, queue=queue, timeout=timeout)
            return time.monotonic() - began

        one(0)
        one(1)
        yield one


def bodies(running: Cluster, broker: int) -> list[bytes]:
    """Return all messages of a broker's queue."""
    queue = QueueId(TOPIC, running.brokers[broker].name, 0)
    with PullConsumer(name_server=running.name_server, group="reader") as consumer:
        end = consumer.bounds(queue)[1]
        consumer.assign({queue: 0})
        found: list[bytes] = []
        while consumer.position(queue) < end:
            found += [bytes(message.body) for message in consumer.poll(timeout=10.0)]
    return found


def test_answers_of_one_broker_are_late(faulty: Cluster, send: Callable[..., float]) -> None:
    with faulty.brokers[0].network.delay(LATE, direction="answers"):
        assert send(0) >= LATE
        send(1, timeout=5.0)
    send(0)


def test_lost_answers_leave_the_message_stored(faulty: Cluster, send: Callable[..., float]) -> None:
    with faulty.brokers[0].network.lose(), pytest.raises(SendTimeout) as told:
        send(0, b"lost answer", timeout=LATE)
    assert told.value.may_exist
    assert b"lost answer" in bodies(faulty, 0)


def test_a_link_that_takes_no_requests_keeps_the_message_until_it_is_healed(
    faulty: Cluster, send: Callable[..., float]
) -> None:
    with faulty.brokers[0].network.silence(direction="requests"), pytest.raises(SendTimeout):
        send(0, b"held back", timeout=LATE)
    await_true(lambda: b"held back" in bodies(faulty, 0), 10)


def test_a_slow_link_needs_its_time(faulty: Cluster, send: Callable[..., float]) -> None:
    with faulty.brokers[0].network.slow(400_000):
        # Random bytes, because a producer compresses others.
        assert send(0, os.urandom(100_000)) >= 0.2


def test_a_busy_broker_says_so_and_takes_the_message_later(
    faulty: Cluster, send: Callable[..., float]
) -> None:
    with faulty.brokers[0].network.busy(600), pytest.raises(BrokerBusy, match="broker busy"):
        send(0, b"refused")
    send(0, b"taken")
    found = bodies(faulty, 0)
    assert b"taken" in found
    assert b"refused" not in found


def receive_all(known: socket.socket) -> None:
    """Read to the end."""
    while known.recv(1 << 16):
        pass


def test_a_cut_ends_connections_and_not_the_broker(
    faulty: Cluster, send: Callable[..., float]
) -> None:
    host, _, port = faulty.brokers[0].address.rpartition(":")
    with socket.create_connection((host, int(port))) as known:
        # An answer shows that the link has accepted the connection; the system accepts it earlier.
        known.sendall(_core.Command(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=1).encode())
        assert known.recv(1)
        faulty.brokers[0].network.cut()
        with pytest.raises(ConnectionResetError):
            receive_all(known)
    # The producer may notice its lost connection at the next send, or before.
    await_true(lambda: sends(lambda: send(0)), 10)


def sends(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except RmqError:
        return False
    return True


def test_a_broker_that_refuses_is_left_out(faulty: Cluster) -> None:
    first, second = faulty.brokers
    first.network.refuse()
    host, _, port = first.address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    with Producer(name_server=faulty.name_server) as producer:
        assert {producer.send(TOPIC, b"coffee").broker for _ in range(4)} == {second.name}
        first.network.heal()
        await_true(lambda: producer.send(TOPIC, b"coffee").broker == first.name, 20)


def test_the_other_name_server_serves(faulty: Cluster) -> None:
    faulty.name_servers[0].network.refuse()
    with Producer(name_server=faulty.name_server) as producer:
        producer.send(TOPIC, b"coffee")
    # Brokers bypass the relay: they stay registered.
    assert len(faulty.name_servers[0].server.brokers()) == 2


def test_a_broker_that_was_stopped_refuses_and_comes_back(
    faulty: Cluster, send: Callable[..., float]
) -> None:
    broker = faulty.brokers[0]
    address = broker.address
    broker.stop()
    with pytest.raises(ConnectionLost) as told:
        send(0)
    assert not told.value.may_exist
    broker.start()
    assert broker.address == address
    with Producer(name_server=faulty.name_server) as producer:
        producer.send(TOPIC, b"back", queue=QueueId(TOPIC, broker.name, 0))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda one: one.network.delay(-1), "`seconds` is a number from 0"),
        (lambda one: one.network.slow(0), "`bytes_per_second` is 1 or more: 0"),
        (lambda one: one.network.lose(direction="up"), "requests, answers or both: `up`"),
        (lambda one: one.disk.full(-1), "`free_bytes` is 0 or more: -1"),
    ],
)
def test_faults_that_make_no_sense_are_refused(
    faulty: Cluster, wrong: Callable[[object], object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        wrong(faulty.brokers[0])


def test_without_faults_the_error_says_how_to_get_them(rocketmq: Cluster) -> None:
    for name in ("network", "disk"):
        with pytest.raises(ConfigError, match=r"use cluster\(faults=True\)"):
            getattr(rocketmq.brokers[0], name)
    with pytest.raises(ConfigError, match=r"`broker_ip1` cannot be given with faults=True"):
        cluster(faults=True, broker_ip1="127.0.0.1").__enter__()


@pytest.mark.rocketmq(faults=True, flush_disk_type="SYNC_FLUSH")
def test_a_full_disk_refuses_and_takes_again(rocketmq: Cluster) -> None:
    with Producer(name_server=rocketmq.name_server, retries=0) as producer:
        producer.send(TOPIC, b"before")
        with rocketmq.brokers[0].disk.full(100), pytest.raises(BrokerError):
            producer.send(TOPIC, b"x" * 1000)
        await_true(lambda: sends(lambda: producer.send(TOPIC, b"after")), 20)
    assert rocketmq.broker.health()["store"]["has_failed"] is False


@pytest.mark.rocketmq(faults=True, flush_disk_type="SYNC_FLUSH")
def test_a_slow_disk_makes_answers_late(rocketmq: Cluster) -> None:
    with Producer(name_server=rocketmq.name_server, send_timeout=10.0) as producer:
        producer.send(TOPIC, b"before")
        began = time.monotonic()
        with rocketmq.brokers[0].disk.slow(LATE / 2):
            producer.send(TOPIC, b"coffee")
        assert time.monotonic() - began >= LATE / 2


@pytest.mark.rocketmq(faults=True, flush_disk_type="SYNC_FLUSH")
def test_after_a_failed_fsync_nothing_is_acknowledged_until_a_restart(rocketmq: Cluster) -> None:
    with Producer(name_server=rocketmq.name_server, retries=0) as producer:
        producer.send(TOPIC, b"before")
        with rocketmq.brokers[0].disk.fail_syncs(), pytest.raises(BrokerError):
            producer.send(TOPIC, b"not synced")
        with pytest.raises(RmqError):
            producer.send(TOPIC, b"refused")
        rocketmq.brokers[0].stop()
        rocketmq.brokers[0].start()
        await_true(lambda: sends(lambda: producer.send(TOPIC, b"after")), 20)
