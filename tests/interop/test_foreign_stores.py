"""Stores of the real broker with data that ours does not support: refused by name, unchanged.

One real broker writes a store with all kinds that can coexist, another one over RocksDB. Each kind
is then tested in a copy that has only that kind. Log files are read as tables all the same.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pyrmq import Broker, arrow
from pyrmq.errors import ServerError
from tests.interop import artifacts
from tests.interop.ours import OurNameServer
from tests.interop.rocketmq import JavaBroker
from tests.interop.sample import SETTINGS
from tests.interop.store_sends import CREATE_TOPIC, SEND_BATCH, Sender, key, send, text
from tests.reference import record as log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.interop_all

VERSION = artifacts.VERSIONS[0]
KINDS = {
    "batchconsumequeue": "batch consume queues",
    "compaction": "compacted topics",
    "consumequeue/%LMQ%*": "multi-dispatch",
}
"""Files of a kind to the text of the refusal."""

PROPERTIES = {
    **SETTINGS,
    "timerWheelEnable": "true",
    "timerPrecisionMs": 1000,
    "enableMultiDispatch": "true",
    "enableLmq": "true",
}
AWAITED = ("batchconsumequeue/*/*/*", "compaction/compactionLog/*/*/*", "consumequeue/%LMQ%*/*/*")
SECONDS = 60.0
RUNTIME_INFO = 28


def create(sender: Sender, topic: str, attributes: str) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": attributes,
    }
    answer = sender.ask(CREATE_TOPIC, fields)
    assert answer.code == 0, answer.remark


def await_files(store: Path, wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not wanted():
        assert time.monotonic() < deadline, sorted(store.rglob("*"))
        time.sleep(0.1)


def has_bytes(path: Path) -> bool:
    return path.is_file() and any(path.read_bytes())


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed store with batch queues, compacted topics, light queues and a timer message."""
    artifacts.require_java()
    store = tmp_path_factory.mktemp("foreign") / "store"
    with OurNameServer() as names:
        one = JavaBroker(VERSION, names.address, store_dir=store, properties=PROPERTIES).start()
        try:
            with closing(Sender(one.address)) as sender:
                create(sender, "Batched", "+queue.type=BatchCQ")
                create(sender, "Compacted", "+cleanup.policy=COMPACTION")
                create(sender, "Plain", "")
                items = log.encode_batch([log.BatchItem(b"a"), log.BatchItem(b"b")])
                unique = {"UNIQ_KEY": key(1), "INNER_NUM": "2"}
                answers = [
                    send(sender, "Batched", items, unique, code=SEND_BATCH, batch=True),
                    send(sender, "Compacted", b"c", {"UNIQ_KEY": key(2), "KEYS": "k"}),
                    send(
                        sender,
                        "Plain",
                        b"light",
                        {"UNIQ_KEY": key(3), "INNER_MULTI_DISPATCH": "%LMQ%light"},
                    ),
                    send(
                        sender, "Plain", b"t", text({"UNIQ_KEY": key(4), "TIMER_DELAY_SEC": "9000"})
                    ),
                ]
                assert [answer.code for answer in answers] == [0] * 4, answers
            await_files(
                store,
                lambda: all(any(map(has_bytes, store.glob(pattern))) for pattern in AWAITED),
            )
            await_files(store, lambda: any(map(has_bytes, store.glob("timerlog/*"))))
        finally:
            one.kill()
    return store


def files(store: Path) -> dict[Path, bytes]:
    found = (path for path in store.rglob("*") if path.is_file() and path.name != "lock")
    return {path: path.read_bytes() for path in found}


def without_topics_of_batches(store: Path) -> None:
    """Make them ordinary ones, as the text of the refusal says."""
    for table in (store / "config").glob("topics.json*"):
        table.write_text(table.read_text().replace('"BatchCQ"', '"SimpleCQ"'))


def start(store: Path, topic: str | None = None, **more: object) -> dict[str, str]:
    """Start our broker on a store, send to a topic, and stop it; return what it reported."""
    settings = {
        **more,
        "mapped_file_size_commit_log": SETTINGS["mappedFileSizeCommitLog"],
        "mapped_file_size_consume_queue": SETTINGS["mappedFileSizeConsumeQueue"],
        "max_hash_slot_num": SETTINGS["maxHashSlotNum"],
        "max_index_num": SETTINGS["maxIndexNum"],
    }
    broker = Broker(
        listen_port=0,
        bind_address="127.0.0.1",
        broker_ip1="127.0.0.1",
        store_path_root_dir=store,
        **settings,  # type: ignore[arg-type]
    )
    with broker as one, closing(Sender(one.address)) as sender:
        if topic is not None:
            assert send(sender, topic, b"ours", {"UNIQ_KEY": key(9)}).code == 0
        told = sender.ask(RUNTIME_INFO, {})
    table: dict[str, str] = json.loads(told.body or b"{}")["table"]
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_with_what_ours_does_not_write_is_refused_by_name(
    tmp_path: Path, mixed: Path, kind: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(mixed, store)
    for other in KINDS:
        if other != kind:
            for path in store.glob(other):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert_refused(store, KINDS[kind])


def test_without_them_the_same_store_opens_with_its_timer_message(
    tmp_path: Path, mixed: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(mixed, store)
    for kind in KINDS:
        for path in store.glob(kind):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    without_topics_of_batches(store)
    before = files(store)
    with pytest.raises(ServerError, match="timerWheelEnable is false"):
        start(store, timer_wheel_enable=False)
    assert files(store) == before
    for _ in range(2):
        assert start(store)["timerCongestNum"] == "1"


def test_log_files_of_batches_are_read_message_by_message(mixed: Path) -> None:
    columns = ["topic", "queueId", "queueOffset", "body", "keys", "msgId"]
    rows = arrow.read_log(mixed, columns=columns, progress=False).to_pylist()
    found = {(row["topic"], row["queueOffset"]): row["body"] for row in rows}
    assert len(found) == len(rows)
    assert found == {
        ("Batched", 0): b"a",
        ("Batched", 1): b"b",
        ("Compacted", 0): b"c",
        ("Plain", 0): b"light",
    }
    assert arrow.read_log(mixed, "Batched", columns=["body"]).num_rows == 2


def made_by_java(
    store: Path, options: dict[str, object], wanted: Callable[[], bool] = lambda: True
) -> None:
    """Make a real broker store a message, and kill it once its files exist."""
    artifacts.require_java()
    with OurNameServer() as names:
        properties = {**SETTINGS, **options}
        one = JavaBroker(VERSION, names.address, store_dir=store, properties=properties).start()
        try:
            with closing(Sender(one.address)) as sender:
                create(sender, "Plain", "")
                assert send(sender, "Plain", b"x", {"UNIQ_KEY": key(1)}).code == 0
            await_files(store, wanted)
        finally:
            one.kill()


def assert_refused(store: Path, name: str) -> None:
    before = files(store)
    with pytest.raises(ServerError, match=name):
        start(store)
    assert files(store) == before


def test_a_store_with_a_topic_of_batches_is_refused_by_name(tmp_path: Path) -> None:
    """Also one that was never used: once it has ordinary queues, a Java broker does not start."""
    store = tmp_path / "store"
    artifacts.require_java()

    def java() -> JavaBroker:
        return JavaBroker(VERSION, names.address, store_dir=store, properties=SETTINGS)

    with OurNameServer() as names:
        with java() as one, closing(Sender(one.address)) as sender:
            create(sender, "Plain", "")
            create(sender, "Batched", "+queue.type=BatchCQ")
            assert send(sender, "Plain", b"x", {"UNIQ_KEY": key(1)}).code == 0
        assert_refused(store, r"topics of batches \(queue.type=BatchCQ\).*: Batched; nothing was")
        without_topics_of_batches(store)
        start(store, topic="Batched")
        with java() as one, closing(Sender(one.address)) as sender:
            assert send(sender, "Batched", b"y", {"UNIQ_KEY": key(2)}).code == 0


def test_a_rocksdb_store_is_refused_by_name(tmp_path: Path) -> None:
    made_by_java(tmp_path / "store", {"storeType": "defaultRocksDB"})
    assert_refused(tmp_path / "store", "RocksDB")


def test_a_store_with_a_tiered_part_is_refused_by_name(tmp_path: Path) -> None:
    tiered = tmp_path / "tiered"
    options: dict[str, object] = {
        "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
        "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
        "tieredStoreFilePath": str(tiered),
        "tieredStorageLevel": "FORCE",
        "tieredStoreGroupCommitTimeout": 100,
    }
    made_by_java(tmp_path / "store", options, lambda: any(map(has_bytes, tiered.rglob("*"))))
    assert_refused(tmp_path / "store", "tiered storage")
