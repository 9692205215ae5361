"""The cluster for tests: real, on free ports, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyrmq import Producer, PullConsumer
from pyrmq.errors import ClosedError, ConfigError
from pyrmq.testing import Cluster, cluster

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
