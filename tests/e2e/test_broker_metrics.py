"""The broker's metrics port: every value against what was sent and read, and its limits."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.wire import Connection, await_true
from tests.interop.jvm import free_port

from pyrmq import (
    Broker,
    ConfigError,
    NameServer,
    Producer,
    PullConsumer,
    RmqError,
    SimpleConsumer,
)
from pyrmq.broker.metrics import OTHERS, Listed
from pyrmq.codes import RequestCode
from pyrmq.otel import export_server
from pyrmq.server.metrics import Family, Histogram, exposition
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric
    from prometheus_client.samples import Sample

    from pyrmq import PoppedMessage
    from pyrmq.testing import Cluster

HOST = "127.0.0.1"
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "broker.json"


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(port: int) -> dict[str, Metric]:
    status, text = get(port, "/metrics")
    assert status == 200, text
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(port: int, name: str) -> list[Sample]:
    found = scrape(port)
    return found[name].samples if name in found else []


def value(port: int, name: str, **labels: str) -> float:
    found = [
        one.value
        for one in samples(port, name)
        if one.name in {name, f"{name}_total"} and labels.items() <= one.labels.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return float(found[0])


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def address(port: int) -> Iterator[str]:
    with cluster(metrics_port=port) as running:
        yield running.name_server


def test_counters_and_lag_by_topic_group_and_queue(address: str, port: int) -> None:
    with Producer(name_server=address) as producer:
        for _ in range(30):
            producer.send("orders", b"x" * 100)
        producer.send("stock", b"y")
    assert value(port, "rocketmq_messages_in", topic="orders") == 30
    assert value(port, "rocketmq_throughput_in", topic="orders") > 3000
    assert value(port, "rocketmq_messages_in", topic="stock") == 1
    assert value(port, "pyrmq_broker_messages_in") >= 31
    next_offsets = samples(port, "pyrmq_broker_queue_next_offset")
    assert sum(one.value for one in next_offsets if one.labels["topic"] == "orders") == 30

    with PullConsumer(name_server=address, group="readers") as consumer:
        consumer.subscribe("orders")
        read = 0
        while read < 30:
            read += len(consumer.poll(10, timeout=10))
        await_true(lambda: value(port, "pyrmq_broker_held_pulls") > 0)
        connected = {"consumer_group": "readers"}
        assert value(port, "rocketmq_consumer_connections", **connected) == 1
        consumer.commit()
    lag = {"consumer_group": "readers", "topic": "orders"}
    await_true(lambda: value(port, "rocketmq_consumer_lag_messages", **lag) == 0)
    assert value(port, "rocketmq_messages_out", **lag) == 30

    with Producer(name_server=address) as producer:
        for _ in range(7):
            producer.send("orders", b"x")
    assert value(port, "rocketmq_consumer_lag_messages", **lag) == 7
    waiting = samples(port, "pyrmq_broker_queue_lag_messages")
    assert sum(one.value for one in waiting if one.labels["group"] == "readers") == 7
    await_true(
        lambda: value(port, "pyrmq_broker_group_lag_seconds", group="readers", topic="orders") > 0
    )
    assert value(port, "rocketmq_consumer_lag_latency", **lag) > 0


def test_messages_in_flight_of_a_group_that_pops(address: str, port: int) -> None:
    with Producer(name_server=address) as producer:
        for _ in range(3):
            producer.send("orders", b"x")
    group = {"consumer_group": "poppers", "topic": "orders"}
    with SimpleConsumer(name_server=address, group="poppers") as consumer:
        consumer.subscribe("orders")
        held: list[PoppedMessage] = []
        while len(held) < 3:
            held += consumer.receive(3, invisible=60.0, wait=5.0)
        assert value(port, "rocketmq_consumer_inflight_messages", **group) == 3
        consumer.ack(held[0])
        assert value(port, "rocketmq_consumer_inflight_messages", **group) == 2
    for name in ("rocketmq_pop_revive_lag", "rocketmq_pop_revive_latency"):
        queues = samples(port, name)
        assert [one.labels["queue_id"] for one in queues] == [str(queue) for queue in range(8)]
        assert {one.value for one in queues} == {0}


def test_the_state_of_store_and_process(address: str, port: int) -> None:
    with Producer(name_server=address) as producer:
        producer.send("orders", b"x")
        producer.send("orders", b"later", delay_level=18)
    assert value(port, "pyrmq_broker_delayed_messages") == 1
    assert value(port, "pyrmq_broker_ready") == 1
    assert value(port, "pyrmq_broker_registered") == 1
    assert value(port, "pyrmq_broker_recovered_from_crash") == 0
    assert value(port, "pyrmq_broker_memory_resident_bytes") > 1 << 20
    assert value(port, "pyrmq_broker_descriptors") > 10
    assert value(port, "pyrmq_broker_store_read_only") == 0
    assert value(port, "rocketmq_storage_size") > 0
    assert value(port, "rocketmq_broker_permission") == 6

    def fsyncs() -> float:
        found = samples(port, "pyrmq_broker_fsync_seconds")
        return sum(
            one.value
            for one in found
            if one.name.endswith("_count") and one.labels["files"] == "commit log"
        )

    await_true(lambda: fsyncs() >= 1)


def test_waits_of_senders_for_an_fsync_are_counted(port: int) -> None:
    def waits() -> tuple[float, float]:
        found = {one.name: one.value for one in samples(port, "pyrmq_broker_flush_wait_seconds")}
        name = "pyrmq_broker_flush_wait_seconds"
        return found[f"{name}_count"], found[f"{name}_sum"]

    with cluster(faults=True, metrics_port=port) as running:
        with Producer(name_server=running.name_server) as producer:
            producer.send("orders", b"x")
            assert waits() == (0, 0)
        with Producer(name_server=running.name_server, durability="local") as producer:
            for _ in range(3):
                producer.send("orders", b"x")
            count, before = waits()
            assert count == 3
            assert before > 0
            with running.brokers[0].disk.slow(0.2):
                producer.send("orders", b"x")
            count, seconds = waits()
            assert count == 4
            assert seconds - before > 0.19


def test_orchestrators_are_told_live_and_ready(port: int) -> None:
    with cluster(faults=True, metrics_port=port, flush_disk_type="SYNC_FLUSH") as running:
        assert get(port, "/live") == (200, "live\n")
        assert get(port, "/ready") == (200, "ready\n")
        with Producer(name_server=running.name_server, retries=0) as producer:
            producer.send("orders", b"x")
            running.brokers[0].disk.fail_syncs()
            with pytest.raises(RmqError):
                producer.send("orders", b"x", timeout=5)
        await_true(lambda: get(port, "/ready")[0] == 503)
        assert value(port, "pyrmq_broker_store_read_only") == 1
        assert get(port, "/live")[0] == 200
    with pytest.raises(urllib.error.URLError):
        get(port, "/live")


def test_clients_that_never_read_or_never_ask_delay_nobody(address: str, port: int) -> None:
    with ExitStack() as stack:
        for number in range(20):
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            peer.connect((HOST, port))
            if number % 2:
                peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        began = time.monotonic()
        assert get(port, "/live")[0] == 200
        assert scrape(port)
        assert time.monotonic() - began < 10
        with Producer(name_server=address) as producer:
            producer.send("beside", b"x")


def test_a_broker_and_a_name_server_share_a_port(tmp_path: Path, port: int) -> None:
    name_server = NameServer(
        listen_port=0, bind_address=HOST, kv_config_path=tmp_path / "kv.json", metrics_port=port
    )
    with name_server:
        broker = Broker(
            listen_port=0,
            bind_address=HOST,
            broker_ip1=HOST,
            namesrv_addr=name_server.address,
            store_path_root_dir=str(tmp_path / "store"),
            metrics_port=port,
        )
        with broker:
            found = scrape(port)
            assert "pyrmq_broker_ready" in found
            assert "pyrmq_nameserver_ready" in found
        found = scrape(port)
        assert "pyrmq_broker_ready" not in found
        assert get(port, "/ready")[0] == 200


def test_what_is_not_listed_by_name_is_added_up(port: int) -> None:
    with cluster(metrics_port=port, metrics_top=2) as running:
        with Producer(name_server=running.name_server) as producer:
            for number in range(6):
                for _ in range(number + 1):
                    producer.send(f"topic-{number}", b"x")
        counted = {one.labels["topic"]: one.value for one in samples(port, "rocketmq_messages_in")}
        assert counted == {"topic-5": 6, "topic-4": 5, OTHERS: 10}
        running.broker.reconfigure({"metrics_top": 100})
        counted = {one.labels["topic"]: one.value for one in samples(port, "rocketmq_messages_in")}
        assert counted["topic-0"] == 1


def fill(running: Cluster, topics: list[str]) -> None:
    """Make topics with a message and the place of a group each; five topics have one group."""
    made = [
        {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": False}
        for name in topics
    ]
    with (
        Connection(running.broker.address) as link,
        Producer(name_server=running.name_server, send_timeout=20) as producer,
    ):
        listed = json.dumps({"topicConfigList": made}).encode()
        assert link.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=listed).code == 0
        for name in topics:
            producer.produce(name, b"x")
        assert producer.flush(30)
        for number, name in enumerate(topics):
            fields = {"consumerGroup": f"group-{topics[0]}-{number // 5}", "topic": name}
            fields |= {"queueId": "0", "commitOffset": "0"}
            assert link.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0


def text_time(running: Cluster, topics: int) -> float:
    """Return the seconds of the processor that the text of the metrics takes, at best."""
    text = exposition(running.broker.figures())
    assert text.count("rocketmq_messages_in_total{") >= topics
    assert text.count("rocketmq_consumer_lag_messages{") >= topics
    took = []
    for _ in range(5):
        # The time of this thread alone: other work on the machine does not count.
        began = time.thread_time()
        exposition(running.broker.figures())
        took.append(time.thread_time() - began)
    return min(took)


def test_a_scrape_of_many_topics_and_groups_grows_with_them_and_no_faster(port: int) -> None:
    """How long one takes is a row of the benchmarks, `scrape`; here only how it grows."""
    with cluster(metrics_port=port, metrics_top=1000) as running:
        fill(running, [f"few-{number}" for number in range(100)])
        few = text_time(running, 100)
        fill(running, [f"many-{number}" for number in range(400)])
        many = text_time(running, 500)
        # Five times as much; time that grows with the square would be 25 times as much.
        assert many < 10 * few, (few, many)


def test_a_listed_name_stays_and_sums_never_shrink() -> None:
    listed = Listed()
    assert listed.split({"a": 1, "b": 2, "c": 3}, 2) == (["b", "c"], ["a"])
    assert listed.sums({"a": (1.0,)}, 1) == (1.0,)
    assert listed.split({"a": 9, "b": 2, "c": 3}, 2) == (["b", "c"], ["a"])
    assert listed.sums({"a": (9.0,)}, 1) == (9.0,)
    # One that was listed is deleted: the other takes its place.
    assert listed.split({"a": 9, "b": 2}, 2) == (["a", "b"], [])
    assert listed.sums({}, 1) == (9.0,)


def test_strange_labels_and_durations_survive_the_parser() -> None:
    strange = 'a"b\\c\nd'
    families = [
        Family("calls", "counter", "Calls.", ("name",), [((strange,), 3)]),
        Family("took", "histogram", "Times.", (), [((), Histogram([1, 0, 2], 7))]),
    ]
    calls, took = text_string_to_metric_families(exposition(families))
    assert calls.samples[0].labels == {"name": strange}
    by_name = {(one.name, one.labels.get("le")): one.value for one in took.samples}
    assert by_name[("took_bucket", "1e-06")] == 1
    assert by_name[("took_bucket", "+Inf")] == by_name[("took_count", None)] == 3
    assert by_name[("took_sum", None)] == pytest.approx(7e-6)


def test_the_dashboard_asks_for_metrics_that_exist(address: str, port: int) -> None:
    with Producer(name_server=address) as producer:
        producer.send("orders", b"x")
    known = {one.name for family in scrape(port).values() for one in family.samples}
    # Without a group these have no sample yet.
    families = scrape(port)
    known |= {name for name, family in families.items() if not family.samples}
    known |= {f"{name}_total" for name in families if families[name].type == "counter"}
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b(?:pyrmq|rocketmq)_\w+", target["expr"])
    }
    assert len(asked) > 20
    assert asked - known == set()


def test_opentelemetry_observes_the_same_figures(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    broker = Broker(listen_port=0, bind_address=HOST, store_path_root_dir=str(tmp_path))
    with broker:
        export_server(broker, MeterProvider([reader]))
        data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, list[Any]] = {
        metric.name: list(metric.data.data_points)
        for part in data.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
    }
    assert found["pyrmq_broker_ready"][0].value == 1
    (size,) = found["rocketmq_storage_size"]
    assert size.attributes["node_type"] == "broker"
    assert {point.attributes["files"] for point in found["pyrmq_broker_fsync_seconds_count"]} == {
        "commit log",
        "consume queues",
    }


def test_a_taken_metrics_port_stops_the_start(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        broker = Broker(
            listen_port=0,
            bind_address=HOST,
            store_path_root_dir=str(tmp_path),
            metrics_port=taken.getsockname()[1],
        )
        with pytest.raises(RmqError, match="metricsPort"):
            broker.start()
        assert broker.health()["status"] == "stopped"
    with pytest.raises(ConfigError, match="metrics_port"):
        Broker(metrics_port=70_000)
