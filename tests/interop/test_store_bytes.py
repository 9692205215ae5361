"""Sends to the real broker and to ours store the same bytes.

Times, the sender's port and the order of properties (hash order in the real one) are masked. Any
other difference is an error, or listed in docs/differences.md.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop import artifacts, store_sends
from tests.interop import store_files as files
from tests.interop.cluster import broker, name_server
from tests.interop.jvm import free_broker_port
from tests.interop.sample import SETTINGS
from tests.reference import record as log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reference.frame import Frame

BOTH = ("java", "ours")
DELAYED_MS = 1000
"""Tolerance of delivery times: ours is taken before the append lock."""

PROPERTIES = {
    **SETTINGS,
    "mappedFileSizeCommitLog": 64 * 1024,
    "transactionOpBatchInterval": 50,
}
SLOTS = int(str(SETTINGS["maxHashSlotNum"]))
AT_RANDOM = b"no unique key"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[Frame]]]:
    """Make both brokers store the same; return each side's directory and answers.

    Ours stores like the newest version; older versions differ from it and from each other.
    """
    artifacts.require_java()
    version = artifacts.VERSIONS[0]
    born_ms = int(time.time() * 1000)
    port = free_broker_port()
    found = {}
    names = name_server("ours", version).start()
    try:
        for who in BOTH:
            store = tmp_path_factory.mktemp("bytes") / who
            store_sends.write_groups(store / "config")
            options = {**PROPERTIES, "listenPort": port, "bindAddress": "::"}
            one = broker(who, version, names.address, store_dir=store, properties=options)
            one.start()
            try:
                answers = store_sends.play(f"127.0.0.1:{port}", born_ms, f"[::1]:{port}")
                await_written(store)
            finally:
                # The real one takes many seconds to stop, and its files already have its writes.
                one.kill()
            found[who] = (store, answers)
    finally:
        names.stop()
    return found


def await_written(store: Path, seconds: float = 30.0) -> None:
    """Wait until queue and index have the entries of the log's last record."""
    last = files.records(store)[-1]
    assert last.body == AT_RANDOM
    queue = f"{last.topic}/{last.queue_id}"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        units = files.queues(store).get(queue, [])
        known = files.indexes(store, SLOTS)
        if units and known and units[-1].position == known[-1].last == last.physical_offset:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{store} is not written after {seconds} s")


def told(answer: Frame) -> tuple[int, dict[str, str]]:
    """Return the content of an answer that reports a stored message."""
    return answer.code, dict(answer.fields or {}) if answer.code == 0 else {}


def test_answers_are_the_same(sides: dict[str, tuple[Path, list[Frame]]]) -> None:
    (_, java), (_, ours) = (sides[who] for who in BOTH)
    assert [told(one) for one in ours[:-1]] == [told(one) for one in java[:-1]]
    assert sum(one.code == 0 for one in java) > 40
    assert {one.code for one in java} > {0, 13, 26}


def test_records_are_the_same_bytes(sides: dict[str, tuple[Path, list[Frame]]]) -> None:
    java, ours = (files.records(sides[who][0]) for who in BOTH)
    assert len(java) > 50
    assert {record.magic for record in java} == {log.MAGIC_V1, log.MAGIC_V2}
    assert [files.masked(record) for record in ours[:-1]] == [
        files.masked(record) for record in java[:-1]
    ]
    assert ours[-1].body == java[-1].body == AT_RANDOM
    assert ours[-1].physical_offset == java[-1].physical_offset


def test_ends_of_segments_are_the_same(sides: dict[str, tuple[Path, list[Frame]]]) -> None:
    java, ours = (files.ends(sides[who][0]) for who in BOTH)
    assert ours == java
    assert len(java) > 2
    assert struct.unpack(">I", java[0][4:8]) == (log.MAGIC_BLANK,)


def test_consume_queues_are_the_same(sides: dict[str, tuple[Path, list[Frame]]]) -> None:
    java, ours = (files.queues(sides[who][0]) for who in BOTH)
    assert java.keys() == ours.keys()
    last = files.records(sides["java"][0])[-1].physical_offset
    for name in java:
        assert len(java[name]) == len(ours[name]), name
        for theirs, own in zip(java[name], ours[name], strict=True):
            assert own.position == theirs.position, name
            if own.position != last:
                assert own.size == theirs.size, name
            assert abs(own.code - theirs.code) <= (
                DELAYED_MS if name.startswith(files.SCHEDULE_TOPIC) else 0
            ), name
    assert len(java) > 10


def test_the_key_index_is_the_same(sides: dict[str, tuple[Path, list[Frame]]]) -> None:
    java, ours = (files.indexes(sides[who][0], SLOTS) for who in BOTH)
    last = files.records(sides["java"][0])[-1].physical_offset

    def known(found: list[files.Index]) -> list[list[tuple[int, int, int]]]:
        return [[row for row in one.entries if row[1] != last] for one in found]

    assert known(ours) == known(java)
    assert [(one.count, one.first, one.last) for one in ours] == [
        (one.count, one.first, one.last) for one in java
    ]
    assert files.hash_of("Bytes", "two") in [row[0] for row in java[0].entries]
