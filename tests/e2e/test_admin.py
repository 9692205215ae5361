"""Administration on a running cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.relay import frames, listening
from tests.e2e.wire import V4_6_1, Connection, register
from tests.reference.frame import RESPONSE, Frame, decode, encode

from pyrmq import Admin, ConfigError, NameServerUnreachable, Producer, QueueId, TopicNotFound
from pyrmq.errors import BrokerError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    import socket


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


def test_a_topic_is_there_also_at_a_broker_that_accepts_it_first(topic: str) -> None:
    """As brokers before 4.7.1 do: they register it after their answer."""

    def serve(client: socket.socket) -> None:
        for frame in frames(client):
            request = decode(frame)
            answer = Frame(code=0, flag=RESPONSE, version=V4_6_1, opaque=request.opaque)
            client.sendall(encode(answer))
            time.sleep(0.2)
            register(registration, "old", ["any", topic], port=port)

    with (
        cluster() as running,
        Connection(running.name_server) as registration,
        listening(serve) as at,
        Admin(name_server=running.name_server) as admin,
    ):
        port = int(at.rpartition(":")[2])
        register(registration, "old", ["any", "other"], port=port)
        admin.create_topic(topic, queues=4, brokers=["old"])
        assert [queues.broker for queues in admin.route(topic).queues] == ["old"]


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
