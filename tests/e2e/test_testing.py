"""The cluster for tests: real servers, free ports, nothing left afterwards."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Producer, PullConsumer
from pyrmq.errors import ClosedError, ConfigError, ServerError
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


def test_a_message_goes_through_it() -> None:
    with cluster() as rocketmq:
        with Producer(name_server=rocketmq.name_server, group="shop") as producer:
            assert producer.send("orders", b"two coffees").queue_offset == 0
        store = rocketmq.store
        assert store.is_dir()
    assert not store.exists()
    assert rocketmq.names.health() == {"status": "stopped"}


def test_the_broker_is_known_when_the_block_begins() -> None:
    with cluster() as rocketmq:
        assert rocketmq.broker.health()["registered"] == 1


def test_two_at_once_do_not_meet() -> None:
    with cluster() as one, cluster() as two:
        assert one.name_server != two.name_server
        assert one.broker.address != two.broker.address
        assert one.store != two.store


def test_the_broker_comes_back_on_its_store_and_port() -> None:
    with cluster() as rocketmq:
        with Producer(name_server=rocketmq.name_server, group="shop") as producer:
            sent = producer.send("orders", b"before")
        address = rocketmq.broker.address
        rocketmq.stop_broker()
        rocketmq.stop_broker()
        with pytest.raises(ClosedError, match=r"call start_broker\(\) first"):
            _ = rocketmq.broker
        assert rocketmq.start_broker() is rocketmq.start_broker()
        assert rocketmq.broker.address == address
        with PullConsumer(name_server=rocketmq.name_server, group="kitchen") as consumer:
            consumer.subscribe("orders")
            message = next(iter(consumer))
            assert (message.body, message.queue_offset) == (b"before", sent.queue_offset)


def test_a_store_that_was_given_stays(tmp_path: Path) -> None:
    with cluster(store=tmp_path) as rocketmq:
        assert rocketmq.store == tmp_path / "store"
    assert (tmp_path / "store" / "commitlog").is_dir()


def test_options_reach_the_broker() -> None:
    with cluster(broker_name="other", auto_create_topic_enable=False) as rocketmq:
        assert rocketmq.broker.options.broker_name == "other"
    with pytest.raises(ConfigError, match="did you mean `broker_name`"), cluster(broker_nam="x"):
        pass


def test_the_fixture_is_a_cluster(rocketmq: Cluster) -> None:
    assert rocketmq.broker.health()["registered"] == 1


@pytest.mark.rocketmq(brokers=2, name_servers=2)
def test_several_brokers_and_name_servers_know_each_other(rocketmq: Cluster) -> None:
    assert [broker.name for broker in rocketmq.brokers] == ["broker-a", "broker-b"]
    assert len({broker.store for broker in rocketmq.brokers}) == 2
    assert rocketmq.name_server.split(";") == [one.address for one in rocketmq.name_servers]
    for names in rocketmq.name_servers:
        assert {one.name for one in names.server.brokers()} == {"broker-a", "broker-b"}
    assert rocketmq.broker is rocketmq.brokers[0].server
    with Producer(name_server=rocketmq.name_server, group="shop") as producer:
        sent = [producer.send("orders", b"coffee") for _ in range(16)]
    assert {one.broker for one in sent} == {"broker-a", "broker-b"}


def test_one_broker_goes_and_comes_back_while_the_other_serves() -> None:
    with cluster(brokers=2) as rocketmq, Producer(name_server=rocketmq.name_server) as producer:
        producer.send("orders", b"before")
        first, second = rocketmq.brokers
        address = second.address
        second.stop()
        assert (second.running, second.health()) == (False, {"status": "stopped"})
        assert second.address == address
        assert {producer.send("orders", b"meanwhile").broker for _ in range(8)} == {first.name}
        second.start()
        assert second.address == second.server.address == address
        assert second.server is not first.server
        assert second.health()["registered"] == 1


def test_the_port_of_a_stopped_broker_is_kept_and_refuses() -> None:
    with cluster() as rocketmq:
        host, _, port = rocketmq.brokers[0].address.rpartition(":")
        rocketmq.brokers[0].stop()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        rocketmq.brokers[0].start()
        socket.create_connection((host, int(port))).close()


def test_a_name_server_comes_back_and_knows_its_brokers() -> None:
    with cluster(brokers=2, name_servers=2) as rocketmq:
        names = rocketmq.name_servers[0]
        address = names.address
        names.stop()
        with Producer(name_server=rocketmq.name_server, group="shop") as producer:
            producer.send("orders", b"by the other name server")
        names.start()
        assert names.address == address
        assert {one.name for one in names.server.brokers()} == {"broker-a", "broker-b"}
        assert rocketmq.names is names.server


def test_a_broker_starts_while_a_name_server_is_away() -> None:
    with cluster(name_servers=2) as rocketmq:
        rocketmq.name_servers[1].stop()
        rocketmq.brokers[0].stop()
        rocketmq.brokers[0].start()
        assert rocketmq.broker.health()["registered"] == 1


def test_what_runs_in_this_process_cannot_be_killed() -> None:
    with cluster() as rocketmq:
        for member in (*rocketmq.brokers, *rocketmq.name_servers):
            with pytest.raises(ConfigError, match=r"cluster\(processes=True\), or stop\(\)"):
                member.kill()
            assert member.running


def test_everything_ends_after_an_exception() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), cluster(brokers=2) as rocketmq:
        _ = 1 / 0
    assert not any(member.running for member in (*rocketmq.brokers, *rocketmq.name_servers))
    assert not rocketmq.store.exists()
    assert threading.active_count() <= before


def test_a_cluster_that_cannot_start_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "store-b").write_text("a file where the second broker's store should be")
    before = threading.active_count()
    with pytest.raises(ServerError, match="store-b"), cluster(brokers=2, store=tmp_path):
        pass
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"brokers": 0}, "`brokers` of a cluster is a number from 1 to 26: 0"),
        ({"name_servers": "2"}, "`name_servers` of a cluster is a number from 1 to 26: '2'"),
        ({"brokers": 2, "broker_name": "x"}, "only .* cluster of one can be given `broker_name`"),
        ({"namesrv_addr": "127.0.0.1:9876"}, "`namesrv_addr` cannot be given"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text), cluster(**arguments):
        pass


@pytest.mark.rocketmq(brokers=2)
def test_the_fixture_of_the_session_takes_the_mark(
    rocketmq_session: Cluster, rocketmq_session_factory: Callable[..., Cluster]
) -> None:
    assert len(rocketmq_session.brokers) == 2
    assert rocketmq_session_factory(brokers=2) is rocketmq_session
    assert rocketmq_session_factory() is not rocketmq_session


def test_a_factory_gives_clusters_of_any_kind(
    rocketmq_factory: Callable[..., Cluster],
) -> None:
    one, two = rocketmq_factory(), rocketmq_factory(brokers=2)
    assert (len(one.brokers), len(two.brokers)) == (1, 2)


FIXTURES = """
import pytest
from pyrmq import Producer

@pytest.fixture(scope="session")
def rocketmq_options():
    return {"name_servers": 2}

@pytest.mark.parametrize("number", range(3))
@pytest.mark.rocketmq(brokers=2)
def test_function(rocketmq, number):
    assert (len(rocketmq.brokers), len(rocketmq.name_servers)) == (2, 2)
    rocketmq.brokers[1].stop()
    with Producer(name_server=rocketmq.name_server, group="shop") as producer:
        assert producer.send("orders", b"coffee").queue_offset == 0
    rocketmq.brokers[1].start()

@pytest.mark.parametrize("number", range(3))
def test_session(rocketmq_session, number):
    assert (len(rocketmq_session.brokers), len(rocketmq_session.name_servers)) == (1, 2)
    with Producer(name_server=rocketmq_session.name_server, group="shop") as producer:
        sent = [producer.send(f"orders-{number}", b"coffee") for _ in range(20)]
    assert sum(one.queue_offset == 0 for one in sent) == len({one.queue_id for one in sent})

@pytest.mark.rocketmq(2)
def test_wrong(rocketmq):
    pass
"""


def test_the_fixtures_do_not_meet_in_processes_side_by_side(tmp_path: Path) -> None:
    """Run like pytest-xdist's workers: each is a process with its own session."""
    (tmp_path / "test_orders.py").write_text(FIXTURES)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    # A checkout has no entry point that could load the plugin.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pyrmq.testing.plugin"]
    sides = [
        subprocess.Popen(
            [*command, f"--basetemp={tmp_path / side}", "-p", "no:cacheprovider"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "python"),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
        )
        for side in ("left", "right")
    ]
    for side in sides:
        text, _ = side.communicate(timeout=50)
        assert "1 error" in text, text
        assert "6 passed" in text, text
        assert "the mark `rocketmq` takes only keywords, such as brokers=2: (2,)" in text


def test_the_plugin_starts_nothing_unasked() -> None:
    program = (
        "import pyrmq.testing.plugin, sys, threading;"
        "print('pyrmq._core' in sys.modules and 'pyrmq.broker.server' in sys.modules,"
        " threading.active_count())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert done.stdout == "False 1\n"
