"""Which address of a broker is read from, and how a read continues at a new one. Without Spark."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyrmq import Admin, Broker, NameServer
from pyrmq._tables.batch import planned
from pyrmq._tables.errors import BrokerAway
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.worker import Part, batches
from pyrmq.codes import RequestCode
from tests.e2e.wire import Connection
from tests.spark.test_choices import read
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.timeout(120)]
TOPIC = "Addresses"


def fill(running: Cluster, text: str) -> None:
    """Create a topic of one queue, and send one message."""
    with Admin(name_server=running.name_server) as admin:
        admin.create_topic(TOPIC, queues=1)
    topic = Topic(TOPIC, running.name_server, running.broker.address)
    topic.send(0, [text])
    topic.connections.close()


def test_an_option_says_whether_master_or_slave_is_read(
    rocketmq_factory: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """A broker of another cluster, with other messages, is registered as the slave."""
    caplog.set_level(logging.INFO, "pyrmq.spark")
    masters, slaves = rocketmq_factory(), rocketmq_factory()
    fill(masters, "of the master")
    fill(slaves, "of the slave")
    given = {"nameServer": masters.name_server, "topic": TOPIC, "timeoutMs": "1000"}
    fields: dict[str, str] = {
        "brokerName": masters.brokers[0].name,
        "brokerAddr": slaves.broker.address,
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:1",
        "brokerId": "1",
        "compressed": "false",
    }
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {}}).encode()
    with Connection(masters.name_server) as slave:
        assert slave.ask(RequestCode.REGISTER_BROKER, fields, body).code == 0
        for choice in ("any", "master"):
            assert read({**given, "readFrom": choice}) == [(b"of the master",)]
        assert f"reading {TOPIC} from: broker-a" in caplog.messages
        assert read({**given, "readFrom": "slave"}) == [(b"of the slave",)]
        masters.stop_broker()
        assert read({**given, "readFrom": "any"}) == [(b"of the slave",)]
        text = r"broker broker-a \(no address\) does not answer: only slaves of it are registered"
        with pytest.raises(BrokerAway, match=text):
            read({**given, "readFrom": "master"})


def test_a_task_goes_on_at_a_brokers_new_address(tmp_path: Path) -> None:
    messages, size = 60, 500_000

    def started(names: NameServer) -> Broker:
        broker = Broker(
            broker_name="broker-a",
            broker_ip1="127.0.0.1",
            bind_address="127.0.0.1",
            listen_port=0,
            namesrv_addr=names.address,
            store_path_root_dir=str(tmp_path / "store"),
            mapped_file_size_commit_log=64 << 20,
        ).start()
        broker.await_registration()
        return broker

    with NameServer(listen_port=0, bind_address="127.0.0.1") as names:
        broker = started(names)
        topic = Topic(TOPIC, names.address, broker.address).create(1)
        topic.send(0, [b"%02d" % number + bytes(size) for number in range(messages)])
        topic.connections.close()
        given = topic.options({"pullsInFlight": 1, "maxBatchBytes": size})
        options = Options.parse(given, batch=True)
        tasks, addresses = planned(options)
        parts = [Part(addresses["broker-a"], part) for task in tasks for part in task]
        schema = pa.schema([pa.field("body", pa.binary())])
        tables = batches(options, schema, parts, away_ms=60_000)
        found = [next(tables)]
        broker.stop(0)
        second = started(names)
        try:
            assert second.address != addresses["broker-a"]
            found += tables
        finally:
            second.stop(0)
    bodies = [body for table in found for body in table.column("body").to_pylist()]
    assert [int(body[:2]) for body in bodies] == list(range(messages))
