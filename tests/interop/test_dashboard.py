"""`pyrmq dashboard` shows and changes a cluster of real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq import Producer
from pyrmq.dashboard.guard import Permissions
from tests.e2e.dashboards import TOKEN, dashboard
from tests.e2e.wire import await_true

if TYPE_CHECKING:
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver

PAIRS = (("java", "JSON"),)
SECONDS = 30.0


def test_a_real_cluster_is_shown_and_changed(driver: Driver, cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    with Producer(name_server=cluster.namesrv, trace=True) as producer:
        ids = [producer.send(topic, f"m-{n}", keys=f"key-{n}").message_id for n in range(8)]
    permissions = Permissions(frozenset({"127.0.0.1"}), TOKEN, may_write=True)
    with (
        driver.push(cluster.namesrv, topic, group=group) as consumer,
        dashboard(cluster.namesrv, permissions) as page,
    ):
        assert len(driver.pushed(consumer, 8)) == 8
        await_true(lambda: "in" in page.get("overview")["brokers"][0], SECONDS)
        tree = page.get("overview")
        (broker,) = tree["brokers"]
        assert (tree["error"], broker["ready"], broker["address"]) == ("", True, cluster.broker)
        assert broker["version"].startswith(cluster.broker_version)
        assert "pyrmq" not in broker
        (row,) = page.get("topics", search=topic)["rows"]
        assert row["messages"] == 8

        def lag() -> int:
            (found,) = page.get("groups", search=group)["rows"]
            assert found["members"] == 1
            return int(found["lag"])

        await_true(lambda: lag() == 0, SECONDS)
        described = page.get("group", group=group)
        assert described["subscriptions"][topic] == "*"
        assert [one["language"] for one in described["members"]] == ["JAVA"]
        message = page.get("message", id=ids[3], topic=topic)
        assert message["text"] == "m-3"
        consumed = {"group": group, "state": "CONSUMED"}
        # The consumer commits each five seconds.
        await_true(
            lambda: consumed in page.get("message", id=ids[3], topic=topic)["track"], SECONDS
        )
        await_true(lambda: page.get("message", id=ids[3], topic=topic)["trace"], SECONDS)
        (step,) = page.get("message", id=ids[3], topic=topic)["trace"]
        assert (step["kind"], step["result"]) == ("Pub", "success")
        assert [one["id"] for one in page.get("messages", topic=topic, key="key-5")] == [ids[5]]
        assert len(page.get("newest", topic=topic, count=5)) == 5
        name = broker["broker"]
        change = {"broker": name, "key": "fileReservedTime", "value": "71"}
        assert page.post("set-option", change) == (200, change)
        status, answer = page.post("seek", {"group": group, "topic": topic, "to": "first"})
        assert (status, {one["offset"] for one in answer["queues"]}) == (200, {0})
