"""What operators ask of a broker, with the real mqadmin and the real push consumer.

``--rocketmq-control`` runs the same tests on a real broker: both must print the same.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.test_mqadmin import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver, Row


PAIRS = (("ours", "JSON"),)
FROM_5 = True


def sent_and_read(driver: Driver, cluster: Cluster, topic: str, group: str) -> None:
    """Send eight messages to queue 1, read them with a group, and commit."""
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=8, queue=1, broker=cluster.broker_name, tag="TagA")
    with driver.push(cluster.namesrv, topic, group=group) as consumer:
        assert len(driver.pushed(consumer, 8)) == 8
        until(driver, f"consumerProgress -n {cluster.namesrv} -g {group}", r"Diff Total: 0\b")


def test_statistics_show_rates_and_lag(driver: Driver, cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    sent_and_read(driver, cluster, topic, group)
    # Lag, messages a second in and out, messages of a day in and out. A real broker takes its first
    # samples after ten seconds.
    row = rf"{topic}\s+{group}\s+0\s+\S+\s+\S+\s+8\s+8\b"
    until(driver, f"statsAll -n {cluster.namesrv} -t {topic}", row, 40)
    progress = driver.mqadmin(f"consumerProgress -n {cluster.namesrv} -g {group}")
    assert re.search(r"Diff Total: 0\b", progress)
    # The command keeps its client: it runs once in a process.
    stats = driver.mqadmin(f"brokerConsumeStats -b {cluster.broker}")
    rows = [line.split() for line in stats.splitlines() if line.startswith(topic)]
    queues = [row[:7] for row in rows if row[1] == group]
    assert queues == [[topic, group, cluster.broker_name, "1", "8", "8", "0"]]


def test_exported_metrics_have_the_messages_that_wait_for_their_time_or_transaction(
    driver: Driver, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.producer(
            cluster.namesrv, group=f"{topic}-producer", transaction=True
        ) as transactional,
        driver.push(cluster.namesrv, topic, group=f"{topic}-group") as consumer,
    ):
        driver.send(producer, topic, count=5)
        driver.send(producer, topic, count=5, delay=1)
        driver.send(transactional, topic, count=5, mode="transaction")
        assert len(driver.pushed(consumer, 15)) == 15
        rates = {"normalInTps", "normalOutTps", "transInTps", "scheduleInTps"}
        # A real broker takes its first samples after ten seconds.
        deadline = time.monotonic() + 40
        while True:
            of_broker = exported_metrics(driver, cluster, tmp_path)
            quota = of_broker["runtimeQuota"]
            found = {name for name, rate in quota["tps"].items() if rate > 0}
            if found == rates:
                break
            assert time.monotonic() < deadline, quota
    assert "JAVA%" in str(of_broker["runtimeVersion"]["clientInfo"])
    assert quota["oneDayNum"]["transOneDayInNum"] >= 5
    assert quota["oneDayNum"]["scheduleOneDayInNum"] >= 5


def exported_metrics(driver: Driver, cluster: Cluster, path: Path) -> Row:
    """Return what exportMetrics writes of the broker."""
    command = f"exportMetrics -n {cluster.namesrv} -c {cluster.cluster_name} -f {path}"
    assert "success" in driver.mqadmin(command)
    exported = json.loads((path / "metrics.json").read_text())
    of_broker: Row = exported["evaluateReport"][cluster.broker_name]
    return of_broker


def test_members_and_what_they_run_are_shown_and_their_offsets_cloned(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    group, copy = f"{topic}-group", f"{topic}-copy"
    where = f"-n {cluster.namesrv} -g {group}"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group) as consumer,
    ):
        driver.send(producer, topic, count=8, queue=1, broker=cluster.broker_name)
        assert len(driver.pushed(consumer, 8)) == 8
        client = f"127.0.0.1@{consumer}"
        connections = driver.mqadmin(f"consumerConnection {where}")
        assert re.search(rf"{client}\s+127\.0\.0\.1:\d+\s+JAVA", connections), connections
        assert re.search(rf"^{topic}\s+\*", connections, re.MULTILINE), connections
        running = driver.mqadmin(f"consumerStatus {where} -i {client} -s")
        for wanted in ("CONSUME_PASSIVELY", topic, "ConsumeMessageThread"):
            assert wanted in running, running
        until(driver, f"consumerProgress {where}", r"Diff Total: 0\b")
        place = {"namesrv": cluster.namesrv, "topic": topic, "group": group}
        assert driver.call("admin.consumeStatus", **place)["members"][client]["1"] == 8
    driver.mqadmin(f"updateSubGroup -n {cluster.namesrv} -b {cluster.broker} -g {copy}")
    clone = f"cloneGroupOffset -n {cluster.namesrv} -s {group} -d {copy} -t {topic} -o true"
    assert "success" in driver.mqadmin(clone)
    with driver.pull(cluster.namesrv, group=copy) as consumer:
        offsets = driver.call("pull.committed", id=consumer, topic=topic)["offsets"]
    assert offsets["1"] == 8


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            "updateStaticTopic -n {namesrv} -b {name} -t {topic}-static -qn 4",
            "static topics are not built yet",
        ),
        ("getColdDataFlowCtrInfo -b {broker}", "limits on reading cold data are not built"),
        ("setCommitLogReadAheadMode -b {broker} -m 0", "limits on reading cold data are not built"),
    ],
)
def test_what_is_not_built_is_refused_with_its_reason(
    driver: Driver, cluster: Cluster, topic: str, command: str, reason: str
) -> None:
    if cluster.kind != "ours":
        pytest.skip("a real broker has them")
    places = {"broker": cluster.broker, "name": cluster.broker_name, "namesrv": cluster.namesrv}
    assert reason in driver.mqadmin(command.format(topic=topic, **places))


def test_entries_of_a_consume_queue_are_listed(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=5, queue=2, broker=cluster.broker_name, tag="TagA")
    where = f"-b {cluster.broker} -t {topic}"
    output = driver.mqadmin(f"queryCq {where} -q 2 -i 1 -c 3")
    assert "max: 5, min: 0" in output
    assert output.count("2598919") == 3, output


def test_a_master_without_slaves_says_so(driver: Driver, cluster: Cluster) -> None:
    output = driver.mqadmin(f"haStatus -b {cluster.broker}")
    assert re.search(r"#MasterAddr\s+" + re.escape(cluster.broker), output), output
    assert re.search(r"#SlaveNum\s+0\b", output), output


def test_consume_queues_are_cleaned(driver: Driver, cluster: Cluster, topic: str) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic"):
        assert "success" in driver.mqadmin(f"{command} -b {cluster.broker}")
    assert topic in driver.mqadmin(f"topicList -n {cluster.namesrv}").split()


def test_unknown_attributes_are_refused(driver: Driver, cluster: Cluster, topic: str) -> None:
    change = f"updateTopic -n {cluster.namesrv} -b {cluster.broker} -t {topic} -r 4 -w 4"
    assert "unsupported key: color" in driver.mqadmin(f"{change} -a +color=red")
    assert "success" in driver.mqadmin(f"{change} -a +message.type=FIFO")


def test_a_push_consumer_filters_by_sql92(driver: Driver, cluster: Cluster, topic: str) -> None:
    change = f"updateBrokerConfig -b {cluster.broker} -k enablePropertyFilter -v true"
    assert "success" in driver.mqadmin(change)
    with driver.producer(cluster.namesrv) as producer:
        for number in range(20):
            driver.send(producer, topic, prefix=f"{number}-", **{"prop.number": str(number)})
        group = f"{topic}-group"
        sql = "number BETWEEN 5 AND 7 OR number = 99"
        with driver.push(cluster.namesrv, topic, group=group, sql=sql) as consumer:
            assert len(driver.pushed(consumer, 3)) == 3
            # Held meanwhile: it is woken by what matches only.
            for number in (1, 2, 99):
                driver.send(producer, topic, prefix=f"{number}-", **{"prop.number": str(number)})
            assert len(driver.pushed(consumer, 4)) == 4
            assert len(driver.pushed(consumer, 5, timeout=1)) == 4
