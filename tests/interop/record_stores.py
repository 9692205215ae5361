"""Record store samples: small directories written by the real broker, with what was sent.

``python -m tests.interop.record_stores`` rewrites ``tests/golden/stores``: for each version one
store after a clean stop and one after kill -9, each as ``<version>-<end>.tar.xz`` (empty parts pack
to nothing) beside ``<version>-<end>.json`` (settings, messages, committed offsets). Run it in an
empty network, as ``tests.interop.record``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.interop.artifacts import VERSIONS
from tests.interop.driver import Driver, Row
from tests.interop.record import GOLDEN, update_manifest
from tests.interop.rocketmq import JavaBroker, JavaNameServer

STORES = GOLDEN / "stores"
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
TOPICS = {"Plain": 4, "Single": 1, "Tagged": 2}
KEPT_KEYS = (
    *(
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
    ),
    *(
        "storeSize",
        "bornTimestamp",
        "storeTimestamp",
        "bornHost",
        "storeHost",
        "properties",
        "bodyLength",
        "bodyMd5",
    ),
    "reconsumeTimes",
)


def fill(driver: Driver, names: JavaNameServer, broker: JavaBroker) -> dict[str, Any]:
    """Send and consume, and return what a reader of the store must find."""
    address = names.address
    for topic, queues in TOPICS.items():
        driver.call(
            "admin.createTopic", namesrv=address, topic=topic, broker=broker.address, queues=queues
        )
    with driver.producer(address, group="store-producer") as producer:
        driver.send(producer, "Plain", count=300, key="plain-", prop__number=7)
        driver.send(producer, "Plain", count=40, start=300, mode="batch", key="batch-", tag="B")
        driver.send(producer, "Single", count=150, key="single-", size=300)
        driver.send(
            producer, "Single", count=3, start=150, size=30_000, key="big-", tag="compressed"
        )
        driver.send(producer, "Tagged", count=50, tag="Ungerade", key="größe-")
        driver.send(producer, "Tagged", count=50, start=50, tag="Gerade", keys="one two three")
        driver.send(producer, "Tagged", delay=18, prefix="in two hours")
    with driver.producer(
        address, group="store-transactions", transaction=True, local="unknown"
    ) as producer:
        driver.send(producer, "Plain", mode="transaction", prefix="half", key="half-")
    with driver.producer(
        address, group="store-committed", transaction=True, local="commit"
    ) as producer:
        driver.send(producer, "Single", mode="transaction", prefix="committed", key="committed-")
    messages = [row for topic in TOPICS for row in read_all(driver, address, topic)]
    with driver.push(address, "Tagged", group="tagged-group", expression="Gerade") as consumer:
        driver.pushed(consumer, 50)
    with driver.push(address, "Single", group="single-group") as consumer:
        driver.pushed(consumer, 154)
    committed = {}
    for group, topic in (("tagged-group", "Tagged"), ("single-group", "Single")):
        with driver.pull(address, group=group) as consumer:
            committed[group] = {
                topic: driver.call("pull.committed", id=consumer, topic=topic)["offsets"]
            }
    return {"topics": TOPICS, "committed": committed, "messages": messages}


def read_all(driver: Driver, namesrv: str, topic: str) -> list[Row]:
    """Pull every message of a topic, in order of queue and offset."""
    rows: list[Row] = []
    with driver.pull(namesrv, group="store-reader") as consumer:
        for queue in range(TOPICS[topic]):
            at, largest = 0, 1
            while at < largest:
                answer = driver.call("pull.pull", id=consumer, topic=topic, queue=queue, offset=at)[
                    "queues"
                ][0]
                rows += answer["messages"]
                at, largest = answer["next"], answer["max"]
    return [{key: row[key] for key in KEPT_KEYS} for row in rows]


def pack(store: Path, target: Path) -> None:
    """Pack a store directory without owners and with fixed order."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with lzma.open(target, "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(store.rglob("*")):
            if path.name != "lock":
                tar.add(path, arcname=str(path.relative_to(store)), recursive=False, filter=plain)


def record_store(version: str, end: str) -> dict[str, Any]:
    """Let the broker of one version write a store, end it, and keep the directory."""
    store = Path(tempfile.mkdtemp(prefix="pyrmq-store-")) / "store"
    with JavaNameServer(version) as names:
        broker = JavaBroker(version, names.address, store_dir=store, properties=SETTINGS).start()
        with Driver(version) as driver:
            found = fill(driver, names, broker)
            if end == "kill":
                broker.kill()
        broker.stop()
    STORES.mkdir(parents=True, exist_ok=True)
    name = f"{version}-{end}"
    archive = STORES / f"{name}.tar.xz"
    pack(store, archive)
    found["settings"] = SETTINGS
    found["files"] = {
        str(path.relative_to(store)): path.stat().st_size
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }
    (STORES / f"{name}.json").write_text(compact(found))
    shutil.rmtree(store.parent)
    return {
        "file": f"stores/{archive.name}",
        "content": f"stores/{name}.json",
        "version": version,
        "end": end,
        "recorded": datetime.now(UTC).date().isoformat(),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }


def compact(tree: dict[str, Any]) -> str:
    """Write JSON with one line a message."""
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in tree["messages"])
    head = {key: value for key, value in tree.items() if key != "messages"}
    text = json.dumps(head, indent=1, ensure_ascii=False).rstrip("\n}")
    return f'{text},\n "messages": [\n{rows}\n ]\n}}\n'


def main() -> None:
    """Record what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", default=",".join(VERSIONS))
    arguments = parser.parse_args()
    for version in arguments.versions.split(","):
        for end in ("clean", "kill"):
            row = record_store(version, end)
            update_manifest("stores", [row])
            sys.stdout.write(f"{row['file']}: {(GOLDEN / row['file']).stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
