"""Compares every byte of a store's log, queues and index with plain Python (`tests/reference`)."""

from __future__ import annotations

import socket
import struct
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.reference import store as reference
from tests.reference.properties import decode as parse
from tests.reference.properties import encode as encode_text
from tests.reference.record import (
    BORN_V6,
    COMPRESSED,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_V6,
    Record,
    crc,
    encode,
)

from pyrmq import TransactionProducer, TransactionState
from pyrmq.cli import main
from pyrmq.testing import cluster

SEGMENT, QUEUE_FILE, SLOTS, ENTRIES = 16 * 1024, 400, 20, 60
LEVEL, LEVEL_MS = 18, 2 * 60 * 60 * 1000
"""A delay that never ends during the test."""
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class Sending(NamedTuple):
    """A message to send, and the way of sending it."""

    way: str
    topic: str
    bodies: list[bytes]
    tag: str | None
    keys: list[str]


words = st.text(alphabet="abcXYZ019äö€", min_size=1, max_size=12)
ways = st.sampled_from(
    ["send"] * 6 + ["batch", "batch", "delayed", "packed", "commit", "rollback", "unknown"]
)
sendings = st.lists(
    st.builds(
        Sending,
        ways,
        st.sampled_from(["ref-a", "ref-b"]),
        st.lists(st.binary(min_size=1, max_size=1500), min_size=1, max_size=5),
        st.none() | words,
        st.lists(words, max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def hosts() -> list[str]:
    """Return this machine's loopback addresses."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return ["127.0.0.1"]
    return ["127.0.0.1", "::1"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("host", hosts())
@settings(
    max_examples=4,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(sent=sendings)
def test_log_queues_and_index_have_the_bytes_of_the_reference(
    sent: list[Sending], host: str
) -> None:
    compare_sent(sent, host)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("host", hosts())
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(sent=sendings)
def test_many_logs_queues_and_indexes_have_the_bytes_of_the_reference(
    sent: list[Sending], host: str
) -> None:
    compare_sent(sent, host)


def compare_sent(sent: list[Sending], host: str) -> None:
    """Send all messages to a broker and compare its files with the reference's."""
    with TemporaryDirectory() as directory:
        home = Path(directory)
        with (
            cluster(
                store=home,
                bind_address=host,
                broker_ip1=host,
                mapped_file_size_commit_log=SEGMENT,
                mapped_file_size_consume_queue=QUEUE_FILE,
                max_hash_slot_num=SLOTS,
                max_index_num=ENTRIES,
            ) as running,
            TransactionProducer(
                name_server=running.name_server,
                group="ref",
                check=lambda _: TransactionState.UNKNOWN,
                compress_over_bytes=5000,
            ) as producer,
        ):
            for one in sent:
                send(producer, one)
        check(next(home.rglob("commitlog")).parent, sent, is_v6=host == "::1")


def send(producer: TransactionProducer, one: Sending) -> None:
    """Send a message in its way."""
    extras: dict[str, Any] = {"tags": one.tag, "keys": one.keys}
    match one.way:
        case "batch":
            producer.send_batch(one.topic, one.bodies, **extras)
        case "delayed":
            producer.send(one.topic, one.bodies[0], delay_level=LEVEL, **extras)
        case "packed":
            producer.send(one.topic, packed(one), **extras)
        case "send":
            producer.send(one.topic, one.bodies[0], **extras)
        case outcome:
            state = TransactionState[outcome.upper()]
            producer.send_in_transaction(one.topic, one.bodies[0], lambda _: state, **extras)


def packed(one: Sending) -> bytes:
    """Return a compressible body."""
    return one.bodies[0] + bytes(6000)


def expected(sent: list[Sending]) -> Counter[tuple[str, str, bytes]]:
    """Return topic, real topic and body of the expected records."""
    found: Counter[tuple[str, str, bytes]] = Counter()
    for one in sent:
        body = one.bodies[0]
        match one.way:
            case "batch":
                found.update((one.topic, one.topic, body) for body in one.bodies)
            case "delayed":
                found[reference.SCHEDULE_TOPIC, one.topic, body] += 1
            case "packed":
                found[one.topic, one.topic, packed(one)] += 1
            case "send":
                found[one.topic, one.topic, body] += 1
            case outcome:
                found[HALF_TOPIC, one.topic, body] += 1
                found[one.topic, one.topic, body] += outcome == "commit"
    return +found


LONG = "%RETRY%" + "g" * 130
"""A topic so long that its record has the second version."""
stored = st.lists(
    st.builds(
        Record,
        topic=st.sampled_from(["ref-a", "ref-b", LONG]),
        body=st.binary(max_size=1500),
        properties=st.dictionaries(st.sampled_from(["TAGS", "KEYS", "x"]), words).map(encode_text),
        queue_id=st.integers(0, 2),
        sys_flag=st.sampled_from([0, 0, 0, reference.INNER_BATCH, reference.PREPARED]),
        born_host=st.ip_addresses(),
        store_host=st.ip_addresses(),
        reconsume_times=st.integers(0, 3),
    ),
    min_size=1,
    max_size=60,
)


def write_log(home: Path, records: list[Record]) -> list[tuple[Record, int]]:
    """Write a log of these records as a broker would; return them as written."""
    log, ends, found = bytearray(), Counter[tuple[str, int]](), []
    for number, one in enumerate(records):
        flags = one.sys_flag | BORN_V6 * (one.born_host.version == 6)
        flags |= STORE_V6 * (one.store_host.version == 6)
        has_index = one.sys_flag == 0
        queue = one.topic, one.queue_id
        whole = replace(
            one,
            sys_flag=flags,
            magic=MAGIC_V2 if one.topic == LONG else MAGIC_V1,
            queue_offset=ends[queue] if has_index else 0,
            store_timestamp=1_700_000_000_000 + number,
            born_timestamp=1,
            body_crc=crc(one.body),
        )
        ends[queue] += has_index
        left = SEGMENT - len(log) % SEGMENT
        if len(encode(whole)) + 8 > left:
            log += struct.pack(">iI", left, MAGIC_BLANK).ljust(left, b"\0")
        whole = replace(whole, physical_offset=len(log))
        log += encode(whole)
        found.append((whole, len(encode(whole))))
    (home / "commitlog").mkdir(parents=True)
    for base in range(0, len(log), SEGMENT):
        data = bytes(log[base : base + SEGMENT]).ljust(SEGMENT, b"\0")
        (home / "commitlog" / f"{base:020}").write_bytes(data)
    return found


@pytest.mark.timeout(120)
@settings(
    max_examples=4,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(records=stored)
def test_a_log_of_records_of_every_version_gets_queues_and_index_of_the_reference(
    records: list[Record],
) -> None:
    compare_recovered(records)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(records=stored)
def test_many_logs_of_records_of_every_version_get_queues_and_index_of_the_reference(
    records: list[Record],
) -> None:
    compare_recovered(records)


def compare_recovered(records: list[Record]) -> None:
    """Let a broker recover a log of these records and compare its files with the reference's."""
    with TemporaryDirectory() as directory:
        home = Path(directory) / "store"
        there = write_log(home, records)
        with cluster(
            store=Path(directory),
            mapped_file_size_commit_log=SEGMENT,
            mapped_file_size_consume_queue=QUEUE_FILE,
            max_hash_slot_num=SLOTS,
            max_index_num=ENTRIES,
        ):
            pass
        assert list(reference.log(home)) == there
        check_files(home, there)
        assert main(["log", "verify", str(home)]) == 0


def check(home: Path, sent: list[Sending], *, is_v6: bool) -> None:
    assert all(len(data) == SEGMENT for _, data in reference.segments(home))
    records = list(reference.log(home))
    assert all(crc(record.body) == record.body_crc for record, _ in records)
    found: Counter[tuple[str, str, bytes]] = Counter()
    for record, _ in records:
        if record.topic != OP_TOPIC:
            real = parse(record.properties).get("REAL_TOPIC", record.topic)
            is_packed = record.sys_flag & COMPRESSED
            body = zlib.decompress(record.body) if is_packed else record.body
            found[record.topic, real, body] += 1
            assert bool(record.sys_flag & BORN_V6) == is_v6
        assert bool(record.sys_flag & STORE_V6) == is_v6
    assert found == expected(sent)

    check_files(home, records)


def check_files(home: Path, records: list[tuple[Record, int]]) -> None:
    """Compare queues and index with those that the reference builds from the records."""
    queues = reference.queues(records, {LEVEL: LEVEL_MS})
    written = home / "consumequeue"
    names = {(path.parent.name, int(path.name)) for path in written.glob("*/*")}
    assert names == set(queues)
    for (topic, queue), units in queues.items():
        files = sorted((written / topic / str(queue)).iterdir())
        assert [int(path.name) for path in files] == list(range(0, len(units), QUEUE_FILE))
        content = b"".join(path.read_bytes() for path in files)
        assert content == units.ljust(len(files) * QUEUE_FILE, b"\0")

    index = [path.read_bytes() for path in sorted((home / "index").glob("*"))]
    assert index == reference.index(records, SLOTS, ENTRIES)
