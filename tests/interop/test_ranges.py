"""The ends of queues, and pulls around them: both brokers give equal answers.

Also after retention deleted segments, and after a topic was deleted and created again. The real
broker checks for old segments a minute after its start at the earliest.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop import artifacts
from tests.interop.cluster import broker, name_server
from tests.interop.sample import SETTINGS
from tests.interop.store_sends import CREATE_TOPIC, GET_MAX_OFFSET, Sender, key, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reference.frame import Frame

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(300)]

BOTH = ("java", "ours")
PULL, GET_MIN_OFFSET, DELETE_TOPIC, DELETE_OLD = 11, 31, 215, 329
FOUND, PULL_MOVED = 0, 21
QUEUES = 2
SENT = 300
PROPERTIES = {
    **SETTINGS,
    "mappedFileSizeCommitLog": 64 * 1024,
    # Without it, 5.5.0 cannot delete a topic.
    "timerWheelEnable": "true",
    "fileReservedTime": 0,
    "cleanResourceInterval": 100,
    "deleteCommitLogFilesInterval": 1,
    "deleteConsumeQueueFilesInterval": 1,
    "flushIntervalCommitLog": 50,
    "flushCommitLogTimed": "true",
}
SECONDS = 120.0

Told = tuple[Any, ...]


def create(sender: Sender, topic: str) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(QUEUES),
        "writeQueueNums": str(QUEUES),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    assert sender.ask(CREATE_TOPIC, fields).code == 0


def end(sender: Sender, code: int, topic: str, queue: int) -> int:
    told = sender.ask(code, {"topic": topic, "queueId": str(queue)})
    return int((told.fields or {})["offset"])


def pull(sender: Sender, topic: str, queue: int, offset: int, *, subscription: str = "*") -> Frame:
    fields = {
        "consumerGroup": "ranges",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "8",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": subscription,
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return sender.ask(PULL, fields)


def look(sender: Sender, topic: str) -> list[Told]:
    """Return the ends of a topic's queues, and the answers to pulls around them."""
    found: list[Told] = []
    for queue in range(QUEUES):
        least = end(sender, GET_MIN_OFFSET, topic, queue)
        most = end(sender, GET_MAX_OFFSET, topic, queue)
        found.append(("ends", queue, least, most))
        for at in (-1, 0, 1, least - 1, least, least + 1, most - 1, most, most + 1, most + 1000):
            answer = pull(sender, topic, queue, at)
            told = answer.fields or {}
            names = ("nextBeginOffset", "minOffset", "maxOffset")
            found.append((queue, at, answer.code, *(told.get(name) for name in names)))
    return found


def await_oldest(sender: Sender, store: Path, seconds: float = SECONDS) -> None:
    """Request deletion of old segments until only the newest one with messages remains."""
    newest = max(path.name for path in store.glob("commitlog/*") if any(path.read_bytes()))
    deadline = time.monotonic() + seconds
    while min(path.name for path in store.glob("commitlog/*")) < newest:
        assert time.monotonic() < deadline, sorted(store.glob("commitlog/*"))
        assert sender.ask(DELETE_OLD, {}).code == 0
        time.sleep(0.1)
    while end(sender, GET_MIN_OFFSET, "Ranged", 0) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def history(sender: Sender, store: Path) -> dict[str, list[Told]]:
    """Return all answers of a side, by the previous step."""
    found = {}
    create(sender, "Ranged")
    found["empty"] = look(sender, "Ranged")
    for number in range(SENT):
        pairs = {"UNIQ_KEY": key(number)}
        answer = send(sender, "Ranged", b"x" * 900, pairs, queue=number % QUEUES)
        assert answer.code == 0
    found["full"] = look(sender, "Ranged")
    await_oldest(sender, store)
    found["old ones deleted"] = look(sender, "Ranged")
    assert sender.ask(DELETE_TOPIC, {"topic": "Ranged"}).code == 0
    create(sender, "Ranged")
    found["made again"] = look(sender, "Ranged")
    for number in range(3):
        assert send(sender, "Ranged", b"new", {"UNIQ_KEY": key(1000 + number)}).code == 0
    deadline = time.monotonic() + SECONDS
    while pull(sender, "Ranged", 0, 2).code != FOUND and time.monotonic() < deadline:
        time.sleep(0.02)
    found["sent again"] = look(sender, "Ranged")
    return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Told]]]:
    """Return the answers of both brokers."""
    artifacts.require_java()
    found = {}
    names = name_server("ours", artifacts.VERSIONS[0]).start()
    try:
        for who in BOTH:
            store = tmp_path_factory.mktemp("ranges") / who
            version = artifacts.VERSIONS[0]
            settings = {"store_dir": store, "properties": PROPERTIES}
            one = broker(who, version, names.address, **settings).start()  # type: ignore[arg-type]
            try:
                with closing(Sender(one.address)) as sender:
                    found[who] = history(sender, store)
            finally:
                one.kill()
    finally:
        names.stop()
    return found


@pytest.mark.parametrize("when", ["empty", "full", "old ones deleted", "made again", "sent again"])
def test_ends_and_pulls_around_them_are_the_same(
    sides: dict[str, dict[str, list[Told]]], when: str
) -> None:
    java, ours = (sides[who][when] for who in BOTH)
    assert ours == java


def test_a_reader_of_a_deleted_range_is_led_to_what_is_there(
    sides: dict[str, dict[str, list[Told]]],
) -> None:
    ends = {row[1]: row[2:] for row in sides["ours"]["old ones deleted"] if row[0] == "ends"}
    for queue in range(QUEUES):
        least, most = ends[queue]
        rows = {row[1]: row[2:] for row in sides["ours"]["old ones deleted"] if row[0] == queue}
        assert rows[0] == (PULL_MOVED, str(least), str(least), str(most))
        assert rows[most + 1000] == (PULL_MOVED, str(most), str(least), str(most))
