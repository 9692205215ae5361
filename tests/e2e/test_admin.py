"""Administration on a running cluster."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.e2e.dashboards import silent_broker
from tests.e2e.relay import frames, listening
from tests.e2e.wire import V4_6_1, Connection, register
from tests.reference.frame import RESPONSE, Frame, decode, encode

from pyrmq import Admin, ConfigError, NameServerUnreachable, Producer, QueueId, TopicNotFound
from pyrmq.errors import BrokerError, RequestTimeout
from pyrmq.testing import cluster

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator


def test_a_topic_is_created_described_and_deleted() -> None:
    with cluster() as running, Admin(name_server=running.name_server) as admin:
        admin.create_topic("orders", queues=3, perm=6)
        assert "orders" in admin.topics()
        route = admin.route("orders")
        assert [(q.broker, q.read_queues, q.write_queues, q.perm) for q in route.queues] == [
            ("broker-a", 3, 3, 6)
        ]
        assert route.brokers[0].master == running.broker.address
        with Producer(name_server=running.name_server) as producer:
            producer.send("orders", b"x", queue=2)
        stats = admin.topic_stats("orders")
        assert stats[QueueId("orders", "broker-a", 2)].last == 1
        assert sum(queue.last for queue in stats.values()) == 1
        admin.delete_topic("orders")
        assert "orders" not in admin.topics()
        with pytest.raises(TopicNotFound, match="pyrmq topic create orders"):
            admin.route("orders")


def test_a_topic_is_changed_where_it_exists(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=2)
        admin.create_topic(topic, read_queues=6, write_queues=5, brokers=["broker-a"])
        found = {one.broker: one for one in admin.route(topic).queues}
    assert (found["broker-a"].read_queues, found["broker-a"].write_queues) == (6, 5)
    assert (found["broker-b"].read_queues, found["broker-b"].write_queues) == (2, 2)


@contextmanager
def broker_of_4_6_1(name_server: str, topic: str, perm: int | None) -> Iterator[None]:
    """Register a broker that accepts a topic and registers it later, with `perm`; None: never."""

    def serve(client: socket.socket) -> None:
        for frame in frames(client):
            request = decode(frame)
            answer = Frame(code=0, flag=RESPONSE, version=V4_6_1, opaque=request.opaque)
            client.sendall(encode(answer))
            if perm is not None:
                time.sleep(0.2)
                register(registration, "old", ["any", topic], port=port, perm=perm)

    with Connection(name_server) as registration, listening(serve) as at:
        port = int(at.rpartition(":")[2])
        register(registration, "old", ["any", "other"], port=port)
        yield


@pytest.mark.parametrize("perm", [6, 4], ids=["as asked", "of the broker"])
def test_a_topic_is_there_also_at_a_broker_that_accepts_it_first(topic: str, perm: int) -> None:
    """As brokers before 4.7.1 do: they register it after their answer."""
    with (
        cluster() as running,
        broker_of_4_6_1(running.name_server, topic, perm),
        Admin(name_server=running.name_server) as admin,
    ):
        began = time.monotonic()
        admin.create_topic(topic, queues=4, brokers=["old"])
        assert time.monotonic() - began < 1.5
        assert [queues.broker for queues in admin.route(topic).queues] == ["old"]


def test_a_topic_that_a_broker_does_not_register_is_one_warning(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        cluster() as running,
        broker_of_4_6_1(running.name_server, topic, None),
        Admin(name_server=f"127.0.0.1:1;{running.name_server}") as admin,
    ):
        admin.create_topic(topic, queues=4, brokers=["old"])
    said = [record.getMessage() for record in caplog.records if record.name == "pyrmq.admin"]
    assert said[-1] == f"old accepted the topic `{topic}`, but has not registered it yet"
    assert len(said) < 12, "each look at the first name server, which is away, is one line"


def test_a_topic_is_created_at_all_brokers_that_answer(topic: str) -> None:
    with (
        cluster() as running,
        silent_broker(running.name_server) as silent,
        Admin(name_server=running.name_server, timeout=1) as admin,
    ):
        name = running.brokers[0].name
        with pytest.raises(RequestTimeout, match=rf"from {silent} .*; created at: {name}$"):
            admin.create_topic(topic)
        assert [queues.broker for queues in admin.route(topic).queues] == [name]


def test_clusters_and_brokers_are_listed(address: str) -> None:
    with Admin(name_server=address) as admin:
        clusters = admin.cluster()
    assert list(clusters) == ["DefaultCluster"]
    assert [one.name for one in clusters["DefaultCluster"]] == ["broker-a", "broker-b"]


def test_the_error_for_a_wrong_name_lists_the_right_ones(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        with pytest.raises(ConfigError, match="no cluster `nix`; there are: DefaultCluster"):
            admin.create_topic(topic, cluster="nix")
        with pytest.raises(ConfigError, match="no broker `nix`; there are: broker-a"):
            admin.create_topic(topic, brokers=["nix"])
        with pytest.raises(BrokerError, match="UPDATE_AND_CREATE_TOPIC"):
            admin.create_topic("two words")
        with pytest.raises(TopicNotFound):
            admin.delete_topic("nowhere")


def test_name_servers_that_are_away_are_all_named() -> None:
    with (
        Admin(name_server="127.0.0.1:1;127.0.0.1:2") as admin,
        pytest.raises(NameServerUnreachable, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2") as caught,
    ):
        admin.topics()
    assert caught.value.addresses == ["127.0.0.1:1", "127.0.0.1:2"]
