"""What operators ask of a broker, with the real mqadmin and the real push consumer.

``--rocketmq-control`` runs the same tests on a real broker: both must print the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.interop.test_mqadmin import until

if TYPE_CHECKING:
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver


PAIRS = (("ours", "JSON"),)


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
    stats = driver.mqadmin(f"brokerConsumeStats -b {cluster.broker}")
    rows = [line.split() for line in stats.splitlines() if line.startswith(topic)]
    queues = [row[:7] for row in rows if row[1] == group]
    assert queues == [[topic, group, cluster.broker_name, "1", "8", "8", "0"]]


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
