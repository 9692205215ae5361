"""The real push consumer of 5.5.0 in POP mode on our broker, switched by the real mqadmin.

``--rocketmq-control`` runs the same tests on a real broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver

PAIRS = (("ours", "JSON"),)
FROM_5 = True


@pytest.mark.parametrize(
    "orderly",
    [False, pytest.param(True, marks=pytest.mark.interop_all)],
    ids=["concurrently", "orderly"],
)
@pytest.mark.timeout(90)
def test_a_push_consumer_pops_what_a_group_was_told_to_pop(
    driver: Driver, cluster: Cluster, topic: str, *, orderly: bool
) -> None:
    """An orderly listener of the Java client pulls all the same."""
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
    assert {"POP_CK" in row["properties"] for row in seen} == {not orderly}
