"""Fills a store for another broker to read, and reads it back with Java."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.interop.driver import Driver, Row

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "maxHashSlotNum": 200,
    "maxIndexNum": 1000,
    "messageIndexSafe": "true",
    "timerWheelEnable": "false",
    "flushConsumerOffsetInterval": 500,
    "transactionTimeOut": 600_000,
    "maxTransferCountOnMessageInMemory": 32,
}
"""Broker properties for files so small that a few hundred messages fill several of each kind."""

TOPICS = {"Plain": 4, "Single": 1, "Tagged": 2}
"""Topic to number of queues."""

KEPT_KEYS = (
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "msgId",
    "keys",
    "tags",
    "flag",
    "sysFlag",
    "bodyCrc",
    "storeSize",
    "bornTimestamp",
    "storeTimestamp",
    "bornHost",
    "storeHost",
    "properties",
    "bodyLength",
    "bodyMd5",
    "reconsumeTimes",
)
"""Fields that are the same whichever broker reads a message."""

KEYS = {"Plain": ("plain-7", "batch-333"), "Single": ("single-149", "big-151"), "Tagged": ("two",)}
"""Keys of each topic that a query must find."""


def fill(
    driver: Driver, address: str, broker: str, *, delayed: bool = True, transactions: bool = True
) -> dict[str, Any]:
    """Send and consume, and return what a reader of the store must find.

    Args:
        driver: the Java client.
        address: address of the name server.
        broker: address of the broker.
        delayed: send a message that is due in two hours.
        transactions: leave one half message open and commit one transaction.
    """
    for topic, queues in TOPICS.items():
        where = {"namesrv": address, "broker": broker}
        driver.call("admin.createTopic", topic=topic, queues=queues, **where)
    with driver.producer(address, group="store-producer") as producer:
        driver.send(producer, "Plain", count=300, key="plain-", prop__number=7)
        driver.send(producer, "Plain", count=40, start=300, mode="batch", key="batch-", tag="B")
        driver.send(producer, "Single", count=150, key="single-", size=300)
        driver.send(producer, "Single", count=3, start=150, size=30_000, key="big-", tag="packed")
        driver.send(producer, "Tagged", count=50, tag="Ungerade", key="größe-")
        driver.send(producer, "Tagged", count=50, start=50, tag="Gerade", keys="one two three")
        if delayed:
            driver.send(producer, "Tagged", delay=18, prefix="in two hours")
    if transactions:
        transact(driver, address)
    messages = read_topics(driver, address)
    with driver.push(address, "Tagged", group="tagged-group", expression="Gerade") as consumer:
        driver.pushed(consumer, 50)
    with driver.push(address, "Single", group="single-group") as consumer:
        driver.pushed(consumer, sum(row["topic"] == "Single" for row in messages))
    return {"topics": TOPICS, "committed": read_offsets(driver, address), "messages": messages}


def transact(driver: Driver, address: str) -> None:
    """Leave one half message open, and commit one transaction."""
    for local, topic in (("unknown", "Plain"), ("commit", "Single")):
        options = {"transaction": True, "local": local}
        with driver.producer(address, group=f"store-{local}", **options) as producer:
            driver.send(producer, topic, mode="transaction", prefix=local, key=f"{local}-")


def read_offsets(driver: Driver, address: str) -> dict[str, Any]:
    """Read the committed offsets of the two groups: group, topic, queue id to offset."""
    found: dict[str, Any] = {}
    for group, topic in (("tagged-group", "Tagged"), ("single-group", "Single")):
        with driver.pull(address, group=group) as consumer:
            offsets = driver.call("pull.committed", id=consumer, topic=topic)["offsets"]
            found[group] = {topic: offsets}
    return found


def await_offsets_on_disk(store: Path, sent: dict[str, Any], seconds: float = 30.0) -> None:
    """Wait until a broker has written the committed offsets, which it does periodically.

    Raises:
        TimeoutError: they are not in its file after that time.
    """
    path = store / "config" / "consumerOffset.json"
    wanted = [
        (f"{topic}@{group}", queue, offset)
        for group, topics in sent["committed"].items()
        for topic, offsets in topics.items()
        for queue, offset in offsets.items()
    ]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        text = "".join(path.read_text().split()) if path.exists() else ""
        tables = {key: re.search(rf'"{key}":\{{([^}}]*)\}}', text) for key, _, _ in wanted}
        if all(
            (found := tables[key]) and f"{queue}:{offset}" in found[1].replace('"', "").split(",")
            for key, queue, offset in wanted
        ):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{path} does not hold {wanted} after {seconds} s")


def read_topics(driver: Driver, namesrv: str, topics: Mapping[str, int] = TOPICS) -> list[Row]:
    """Pull every message of the topics, in order of topic, queue and offset."""
    rows: list[Row] = []
    with driver.pull(namesrv, group="store-reader") as consumer:
        for topic, queues in topics.items():
            for queue in range(queues):
                where = {"id": consumer, "topic": topic, "queue": queue}
                at, largest = 0, 1
                while at < largest:
                    answer = driver.call("pull.pull", offset=at, **where)["queues"][0]
                    rows += answer["messages"]
                    at, largest = answer["next"], answer["max"]
    return [{key: row[key] for key in KEPT_KEYS} for row in rows]
