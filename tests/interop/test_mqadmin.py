"""mqadmin of the real RocketMQ on our servers."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.options.topic_options import Options

if TYPE_CHECKING:
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver


PAIRS = (("ours", "JSON"),)
"""One header form is enough: these tests check the commands' output."""


def until(driver: Driver, command: str, pattern: str, seconds: float = 40.0) -> str:
    """Repeat a command until its output matches; return the output.

    Raises:
        AssertionError: it never matched; the text is the last output.
    """
    deadline = time.monotonic() + seconds
    while True:
        output = driver.mqadmin(command)
        if re.search(pattern, output):
            return output
        assert time.monotonic() < deadline, f"{command} never printed {pattern!r}, but:\n{output}"


def test_cluster_list_shows_the_broker(driver: Driver, cluster: Cluster) -> None:
    output = driver.mqadmin(f"clusterList -n {cluster.namesrv}")
    row = next(line for line in output.splitlines() if cluster.broker in line).split()
    assert row[:4] == [cluster.cluster_name, cluster.broker_name, "0", cluster.broker]
    assert row[4].startswith("V")
    assert "Exception" not in output


def test_topic_list_holds_a_new_topic(driver: Driver, cluster: Cluster, topic: str) -> None:
    assert topic in driver.mqadmin(f"topicList -n {cluster.namesrv}").split()


def test_topic_route_names_broker_and_queues(driver: Driver, cluster: Cluster, topic: str) -> None:
    output = driver.mqadmin(f"topicRoute -n {cluster.namesrv} -t {topic}")
    assert cluster.broker in output
    assert re.search(r'"readQueueNums"\s*:\s*4', output)
    assert re.search(r'"perm"\s*:\s*6', output)


def test_topic_status_shows_the_offsets_of_every_queue(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=7, queue=2, broker=cluster.broker_name)
    output = driver.mqadmin(f"topicStatus -n {cluster.namesrv} -t {topic}")
    rows = [line.split() for line in output.splitlines() if line.startswith(cluster.broker_name)]
    assert [row[:4] for row in rows] == [
        [cluster.broker_name, str(queue), "0", "7" if queue == 2 else "0"] for queue in range(4)
    ]
    assert re.match(r"\d{4}-\d\d-\d\d", rows[2][4])


def test_update_topic_creates_and_changes_a_topic(
    driver: Driver, cluster: Cluster, name: str
) -> None:
    where = f"-n {cluster.namesrv}"
    for queues, target in ((3, f"-c {cluster.cluster_name}"), (5, f"-b {cluster.broker}")):
        output = driver.mqadmin(f"updateTopic {where} {target} -t {name} -r {queues} -w {queues}")
        assert "success" in output
        until(driver, f"topicRoute {where} -t {name}", rf'"writeQueueNums"\s*:\s*{queues}')


def test_delete_topic_removes_it_from_broker_and_name_server(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=3)
    where = f"-n {cluster.namesrv}"
    assert "success" in driver.mqadmin(f"deleteTopic {where} -c {cluster.cluster_name} -t {topic}")
    assert topic not in driver.mqadmin(f"topicList {where}").split()
    assert "CODE: 17 " in driver.mqadmin(f"topicRoute {where} -t {topic}")


def test_consumer_progress_shows_what_a_group_has_left(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group = f"{topic}-group"
    where = f"-n {cluster.namesrv}"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=8, shards=4)
        with driver.push(cluster.namesrv, topic, group=group) as consumer:
            assert len(driver.pushed(consumer, 8)) == 8
            assert group in driver.mqadmin(f"consumerProgress {where}")
        until(driver, f"consumerProgress {where} -g {group}", r"Diff Total: 0\b")
        driver.send(producer, topic, count=3)
    output = until(driver, f"consumerProgress {where} -g {group}", r"Diff Total: 3\b")
    rows = [line.split() for line in output.splitlines() if line.split()[:1] == [topic]]
    assert sum(int(row[3]) for row in rows) == 11
    assert sum(int(row[4]) for row in rows) == 8


def test_consumer_progress_shows_what_a_stream_of_spark_has_left(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """With `commitToGroup`, to a group that has never had a consumer."""
    group = f"{topic}-spark"
    where = f"-n {cluster.namesrv}"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=8, queue=1, broker=cluster.broker_name)
    options = {"nameServer": cluster.namesrv, "topic": topic, "group": group}
    stream = RemoteCluster(Options.parse(options, batch=False))
    try:
        bounds = stream.snapshot([topic]).bounds
        offsets = {queue: max(0, held.highest - 3) for queue, held in bounds.items()}
        assert stream.commit(offsets) == []
    finally:
        stream.close()
    output = until(driver, f"consumerProgress {where} -g {group}", r"Diff Total: 3\b")
    rows = [line.split() for line in output.splitlines() if line.split()[:1] == [topic]]
    assert [row[2:5] for row in rows if row[3] != "0"] == [["1", "8", "5"]]
    overview = driver.mqadmin(f"consumerProgress {where}")
    assert re.search(rf"^{group}\s.*\s3$", overview, re.MULTILINE), overview


def test_a_message_is_found_by_key_and_by_both_ids(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    where = f"-n {cluster.namesrv} -t {topic}"
    with driver.producer(cluster.namesrv) as producer:
        sent = driver.send(producer, topic, keys="order-42", tag="new", prefix="coffee")[0]
    output = until(driver, f"queryMsgByKey {where} -k order-42", sent["msgId"])
    row = next(line.split() for line in output.splitlines() if sent["msgId"] in line)
    assert row[1:3] == [str(sent["queueId"]), str(sent["queueOffset"])]
    names = f"-n {cluster.namesrv}"
    by_offset_id = where if driver.version.startswith("5") else names
    for command in (
        f"queryMsgById {by_offset_id} -i {sent['offsetMsgId']}",
        f"queryMsgByUniqueKey {where} -i {sent['msgId']}",
    ):
        by_id = driver.mqadmin(command)
        assert re.search(r"Keys:\s+\[order-42\]", by_id)
        assert re.search(r"Tags:\s+\[new\]", by_id)
        assert re.search(rf"Queue Offset:\s+{sent['queueOffset']}\b", by_id)


def test_update_broker_config_changes_what_is_live_and_names_what_is_not(
    driver: Driver, cluster: Cluster
) -> None:
    def update(key: str, value: str) -> str:
        return driver.mqadmin(f"updateBrokerConfig -b {cluster.broker} -k {key} -v {value}")

    def holds(key: str, value: str) -> bool:
        output = driver.mqadmin(f"getBrokerConfig -b {cluster.broker}")
        return bool(re.search(rf"^\s*{key}\s*=\s*{value}\s*$", output, re.MULTILINE))

    try:
        assert "success" in update("brokerPermission", "4")
        assert holds("brokerPermission", "4")
        assert "success" in update("transactionCheckMax", "9")
        assert holds("transactionCheckMax", "9")
    finally:
        assert "success" in update("brokerPermission", "6")
    assert holds("brokerPermission", "6")
    assert "listenPort" in update("listenPort", "1234")
    assert holds("brokerRole", "ASYNC_MASTER")
