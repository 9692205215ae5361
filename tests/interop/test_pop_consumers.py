"""The real client of 5.5.0 in POP mode on our broker, switched by the real mqadmin.

``--rocketmq-control`` runs the same tests on a real broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.driver import DriverError, bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver, Row

PAIRS = (("ours", "JSON"),)
FROM_5 = True

UNKNOWN_CODE = 3
"""REQUEST_CODE_NOT_SUPPORTED."""


def deliveries(driver: Driver, cluster: Cluster, topic: str, *, orderly: bool) -> list[Row]:
    """What a listener gets of 12 messages if its group is to pop and it refuses each once."""
    group = f"{topic}-popped"
    where = f"-b {cluster.broker} -n {cluster.namesrv}"
    driver.mqadmin(f"updateSubGroup {where} -g {group} -o {str(orderly).lower()}")
    mode = driver.mqadmin(f"setConsumeMode {where} -t {topic} -g {group} -m POP -q 8")
    assert "success" in mode, mode
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=12, broker=cluster.broker_name)
    # Each message is refused once: it comes again, which shows that it was hidden, not committed.
    with driver.push(
        cluster.namesrv, topic, group=group, pop=True, later=True, orderly=orderly
    ) as consumer:
        seen = driver.pushed(consumer, 24, timeout=60)
        # A consumer that ends at once leaves its last call uncommitted.
        deadline = time.monotonic() + 20
        progress = ""
        while "Diff Total: 0" not in progress:
            assert time.monotonic() < deadline, progress
            progress = driver.mqadmin(f"consumerProgress -n {cluster.namesrv} -g {group}")
    assert len(seen) == 24
    assert sum(bool(row["accepted"]) for row in seen) == 12
    return seen


@pytest.mark.timeout(180)
def test_a_push_consumer_pops_what_a_group_was_told_to_pop(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    seen = deliveries(driver, cluster, topic, orderly=False)
    handles = [row["properties"].get("POP_CK") for row in seen]
    assert all(handles), "a message without a receipt handle was pulled"
    assert len(set(handles)) == len(seen)
    assert sorted(row["reconsumeTimes"] for row in seen) == [0] * 12 + [1] * 12


@pytest.mark.interop_all
@pytest.mark.timeout(180)
def test_an_orderly_listener_pulls_although_its_group_was_told_to_pop(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """The client asks for no assignment then (`RebalancePushImpl.clientRebalance`)."""
    seen = deliveries(driver, cluster, topic, orderly=True)
    assert not [row for row in seen if "POP_CK" in row["properties"]]


@pytest.mark.timeout(180)
def test_a_client_with_binary_headers_cannot_pop_and_takes_nothing(
    driver: Driver,
    drivers: Callable[[str, str], Driver],
    cluster: Cluster,
    topic: str,
    version: str,
) -> None:
    """Apache's binary header has 16 bits for the code, and its client cuts 200050 to them."""
    group = f"{topic}-binary"
    driver.mqadmin(f"updateSubGroup -b {cluster.broker} -n {cluster.namesrv} -g {group}")
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=3, broker=cluster.broker_name)
    place = {"broker": cluster.broker, "brokerName": cluster.broker_name}
    request = {**place, "topic": topic, "group": group, "max": 32}
    with pytest.raises(DriverError) as refused:
        drivers(version, "ROCKETMQ").call("pop.pop", **request)
    assert refused.value.code == UNKNOWN_CODE, refused.value
    assert str(200_050 & 0xFFFF) in str(refused.value.remark)
    found = driver.call("pop.pop", **request)["messages"]
    assert sorted(bodies(found)) == [b"m-0", b"m-1", b"m-2"]
