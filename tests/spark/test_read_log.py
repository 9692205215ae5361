"""Log files as tables: those of real brokers and ours, whole, damaged, growing and shrinking."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyrmq import Producer, TransactionProducer, arrow
from pyrmq._tables.errors import OffsetError, OptionError
from pyrmq._tables.logs.log_plan import plan
from pyrmq._tables.logs.log_worker import log_batches
from pyrmq._tables.options.log_options import LogOptions, directory_of
from pyrmq.errors import ConfigError, DataLossError, ProtocolError
from pyrmq.testing import cluster
from tests.reference.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing import Cluster

pytestmark = pytest.mark.timeout(120)
STORES = [
    f"{version}-{end}" for version in ("4.6.1", "4.9.7", "5.5.0") for end in ("clean", "kill")
]
COLUMNS = [
    *("topic", "queueId", "queueOffset", "body", "keys", "tags", "properties", "msgId"),
    *("bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "flag", "reconsumeTimes"),
    "commitLogOffset",
]
SEGMENT = 1 << 16


def unpacked(name: str, to: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Return the store of a real broker, and what a Java client read from it."""
    with tarfile.open(GOLDEN / "stores" / f"{name}.tar.xz") as archive:
        archive.extractall(to, filter="data")
    content = lzma.decompress((GOLDEN / "stores" / f"{name}.json.xz").read_bytes())
    return to, json.loads(content)["messages"]


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows = [{**row, "properties": sorted(row.get("properties", []))} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


@pytest.mark.parametrize("name", STORES)
def test_a_real_brokers_directory_gives_what_a_java_client_read(name: str, tmp_path: Path) -> None:
    root, expected = unpacked(name, tmp_path)
    rows = arrow.read_log(root, columns=COLUMNS).to_pylist()
    found = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in rows}
    assert len(found) == len(rows), "no message comes twice"
    wanted = {(one["topic"], one["queueId"], one["queueOffset"]): one for one in expected}
    assert set(found) == set(wanted)
    for key, one in wanted.items():
        row = found[key]
        assert len(row["body"]) == one["bodyLength"]
        assert hashlib.md5(row["body"]).hexdigest() == one["bodyMd5"]
        assert (row["keys"], row["tags"]) == (one["keys"], one["tags"])
        assert row["commitLogOffset"] == one["commitLogOffset"]
        assert row["storeTimestamp"].timestamp() * 1000 == pytest.approx(one["storeTimestamp"])
        assert f"/{row['storeHost']}" == one["storeHost"]


def test_the_commit_log_alone_and_small_pieces_give_the_same(tmp_path: Path) -> None:
    root, _ = unpacked("5.5.0-clean", tmp_path)
    whole = arrow.read_log(root, columns=COLUMNS)
    assert arrow.read_log(root / "commitlog", columns=COLUMNS) == whole
    given = {"path": str(root), "topic": "Plain,Single,Tagged", "maxPartitionBytes": "65536"}
    options = LogOptions.parse({**given, "maxBatchRows": "7"}, batch=True)
    pieces, _ = plan(options)
    assert len(pieces) > 2
    table = pa.Table.from_batches(log_batches(options, whole.schema, pieces), whole.schema)
    assert table.combine_chunks() == whole.combine_chunks()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    store = tmp_path_factory.mktemp("log")
    with cluster(store=store, mapped_file_size_commit_log=SEGMENT) as ours:
        fill(ours)
        yield ours


def fill(ours: Cluster) -> None:
    """Send what a log can hold: large and compressed bodies, properties, half messages."""
    with Producer(name_server=ours.name_server, group="log", compress_over_bytes=4096) as producer:
        for number in range(400):
            body = b"%d " % number * (1 + number % 50 * 3)
            producer.send(
                f"Log{number % 2}",
                body,
                tags="red" if number % 3 else None,
                keys=[f"k{number}"] if number % 5 else [],
                properties={"color": "grün", "number": str(number)} if number % 7 else {},
            )
        producer.send("Log0", b"many times " * 2000)
        producer.send("Log1", b"\x00\xff")


@pytest.mark.parametrize("tags", ["*", "red"])
def test_beside_a_running_broker_files_give_what_its_pulls_give(
    running: Cluster, tags: str
) -> None:
    for topic in ("Log0", "Log1"):
        columns = [*COLUMNS, "brokerName", "sysFlag"]
        common: dict[str, Any] = {"columns": columns, "tags": tags}
        pulled = arrow.read(topic, name_server=running.name_server, **common)
        scanned = arrow.read_log(running.store, topic, broker_name="broker-a", **common)
        assert pulled.num_rows > 100
        assert sorted_rows(scanned) == sorted_rows(pulled)
    nameless = arrow.read_log(running.store, "Log0", columns=["brokerName"])
    assert nameless.column(0).null_count == nameless.num_rows


def test_times_select_what_the_broker_selects(running: Cluster) -> None:
    rows = arrow.read_log(running.store, "Log0", columns=["storeTimestamp"]).to_pylist()
    times = sorted(row["storeTimestamp"] for row in rows)
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    columns = ["topic", "queueId", "queueOffset"]
    window: dict[str, Any] = {"since": since, "until": until, "columns": columns}
    pulled = arrow.read("Log0", name_server=running.name_server, **window)
    scanned = arrow.read_log(running.store, "Log0", **window)
    assert sorted_rows(scanned) == sorted_rows(pulled)


def test_limit_and_several_topics(running: Cluster) -> None:
    both = arrow.read_log(running.store, ["Log0", "Log1"], columns=["topic"])
    assert set(both.column(0).to_pylist()) == {"Log0", "Log1"}
    assert arrow.read_log(running.store, ["Log0", "Log1"], limit=7).num_rows == 7
    assert arrow.read_log(running.store, "NoSuchTopic").num_rows == 0


def test_offsets_choose_queues(running: Cluster) -> None:
    offsets = {"Log0": {"broker-a": {"0": 2, "1": -2}}}
    ends = {"Log0": {"broker-a": {"0": 5, "1": 1}}}
    given = {"path": str(running.store), "topic": "Log0", "brokerName": "broker-a"}
    given |= {"startingOffsets": json.dumps(offsets), "endingOffsets": json.dumps(ends)}
    options = LogOptions.parse(given, batch=True)
    schema = arrow.read_log(running.store, "Log0", columns=["queueId", "queueOffset"]).schema
    table = pa.Table.from_batches(log_batches(options, schema, plan(options)[0]), schema)
    rows = sorted((row["queueId"], row["queueOffset"]) for row in table.to_pylist())
    assert rows == [(0, 2), (0, 3), (0, 4), (1, 0)]


def test_half_messages_and_rolled_back_ones_are_left_out(tmp_path: Path) -> None:
    from pyrmq import TransactionState

    states = iter([TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN])
    with cluster(store=tmp_path) as ours:
        with TransactionProducer(
            name_server=ours.name_server,
            group="transactions",
            check=lambda _: TransactionState.UNKNOWN,
        ) as producer:
            for body in (b"committed", b"rolled back", b"open"):
                producer.send_in_transaction("Paid", body, local=lambda _: next(states))
        deadline = time.monotonic() + 20
        while (table := arrow.read_log(ours.store)).num_rows < 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert table.column("body").to_pylist() == [b"committed"]
        assert table.column("topic").to_pylist() == ["Paid"]


def test_messages_of_a_deleted_topic_are_gone(tmp_path: Path) -> None:
    from pyrmq.admin import Admin

    with cluster(store=tmp_path) as ours:
        with (
            Admin(name_server=ours.name_server) as admin,
            Producer(name_server=ours.name_server, group="deleting") as producer,
        ):
            admin.create_topic("Gone")
            producer.send("Kept", b"kept")
            producer.send("Gone", b"gone")
            assert arrow.read_log(ours.store).num_rows == 2
            admin.delete_topic("Gone")
        assert arrow.read_log(ours.store).column("topic").to_pylist() == ["Kept"]


def test_a_log_that_grows_while_it_is_read_gives_whole_messages(tmp_path: Path) -> None:
    with cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as ours:
        stop = threading.Event()
        sent = 0

        def send() -> None:
            nonlocal sent
            with Producer(name_server=ours.name_server, group="growing") as producer:
                while not stop.is_set():
                    producer.send("Grows", b"x" * 500)
                    sent += 1

        sender = threading.Thread(target=send)
        sender.start()
        try:
            deadline = time.monotonic() + 60
            counts = [0]
            while counts[-1] < 300 and time.monotonic() < deadline:
                least = sent
                table = arrow.read_log(ours.store, "Grows", columns=["body"])
                assert set(table.column(0).to_pylist()) <= {b"x" * 500}
                assert table.num_rows >= least
                counts.append(table.num_rows)
        finally:
            stop.set()
            sender.join()
        assert counts[-1] >= 300
        assert arrow.read_log(ours.store, "Grows").num_rows == sent


def damaged(tmp_path: Path, at: float = 0.5) -> tuple[Path, int, int]:
    """Return a store with one wrong body byte, how many messages it held, and the byte's record."""
    root, messages = unpacked("4.9.7-clean", tmp_path)
    one = sorted(messages, key=lambda m: m["commitLogOffset"])[int(len(messages) * at)]
    position = one["commitLogOffset"]
    flip(root, position + 90)
    return root, len(messages), position


def flip(root: Path, position: int) -> None:
    path = root / "commitlog" / f"{position // SEGMENT * SEGMENT:020}"
    data = bytearray(path.read_bytes())
    data[position % SEGMENT] ^= 0xFF
    path.write_bytes(data)


def test_a_wrong_body_is_an_error_that_names_file_and_position(tmp_path: Path) -> None:
    root, _, position = damaged(tmp_path)
    file = f"{position // SEGMENT * SEGMENT:020}"
    with pytest.raises(ProtocolError, match=rf"{file} .*position {position}.*onCorrupt=skip"):
        arrow.read_log(root)


@pytest.mark.parametrize("where", [0, 4, 30, 90], ids=["size", "magic", "position", "body"])
def test_skip_leaves_out_only_what_is_damaged(
    where: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, messages = unpacked("4.9.7-clean", tmp_path)
    one = sorted(messages, key=lambda m: m["commitLogOffset"])[len(messages) // 2]
    flip(root, one["commitLogOffset"] + where)
    with pytest.raises(ProtocolError, match="onCorrupt=skip"):
        arrow.read_log(root)
    table = arrow.read_log(root, columns=["commitLogOffset"], on_corrupt="skip")
    left = set(table.column(0).to_pylist())
    assert left == {m["commitLogOffset"] for m in messages} - {one["commitLogOffset"]}
    assert "left out (onCorrupt=skip)" in caplog.text


def test_a_wrong_body_passes_where_checksums_are_not_compared(tmp_path: Path) -> None:
    root, count, _ = damaged(tmp_path)
    assert arrow.read_log(root, check_crc=False).num_rows == count


def test_a_cut_file_and_a_missing_one_are_named(tmp_path: Path) -> None:
    root, messages = unpacked("5.5.0-clean", tmp_path)
    first = root / "commitlog" / f"{0:020}"
    os.truncate(first, SEGMENT // 2)
    with pytest.raises(ProtocolError, match="onCorrupt=skip"):
        arrow.read_log(root)
    table = arrow.read_log(root, columns=["commitLogOffset"], on_corrupt="skip")
    left = set(table.column(0).to_pylist())
    assert left >= {m["commitLogOffset"] for m in messages if m["commitLogOffset"] >= SEGMENT}
    assert 0 < len(left) < len(messages)
    again, _ = unpacked("5.5.0-clean", tmp_path / "again")
    (again / "commitlog" / f"{SEGMENT:020}").unlink()
    with pytest.raises(ProtocolError, match=f"{SEGMENT} bytes are missing before this file"):
        arrow.read_log(again)


def test_a_last_record_that_is_not_whole_ends_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, messages = unpacked("5.5.0-clean", tmp_path)
    last = max(messages, key=lambda m: m["commitLogOffset"])
    path = root / "commitlog" / f"{last['commitLogOffset'] // SEGMENT * SEGMENT:020}"
    data = bytearray(path.read_bytes())
    inside = last["commitLogOffset"] % SEGMENT
    # Its head is there, the rest of it and what followed are zeros, as after a power cut.
    data[inside + 80 :] = bytes(len(data) - inside - 80)
    path.write_bytes(data)
    assert arrow.read_log(root).num_rows == len(messages) - 1
    os.truncate(path, inside + 40)
    assert arrow.read_log(root).num_rows == len(messages) - 1
    assert "not whole" in caplog.text


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    for path, problem in [
        (tmp_path / "missing", "does not exist"),
        (tmp_path, "is empty"),
        (Path(__file__), "is not a directory"),
        (Path(__file__).parent, "has no commitlog"),
    ]:
        with pytest.raises(OptionError, match=f"{problem}.*storePathRootDir"):
            arrow.read_log(path)
    (tmp_path / "commitlog").mkdir()
    assert arrow.read_log(tmp_path).num_rows == 0, "a broker that never stored anything"
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(b"no log at all" * 100)
    with pytest.raises(ProtocolError, match="is not a file of a commit log"):
        arrow.read_log(tmp_path)
    assert arrow.read_log(tmp_path, on_corrupt="skip").num_rows == 0
    dledger = tmp_path / "dledger"
    (dledger / "dledger-n0").mkdir(parents=True)
    with pytest.raises(OptionError, match="DLedger"):
        arrow.read_log(dledger)


def test_arguments_that_cannot_be(tmp_path: Path) -> None:
    root, _ = unpacked("4.6.1-clean", tmp_path)
    with pytest.raises(OptionError, match="onCorrupt: expected fail or skip"):
        arrow.read_log(root, on_corrupt="ignore")
    with pytest.raises(ConfigError, match="did you mean body"):
        arrow.read_log(root, columns=["bdy"])
    with pytest.raises(OptionError, match="names no topic"):
        arrow.read_log(root, [])
    with pytest.raises(OptionError, match="only local directories"):
        directory_of({"path": "s3://bucket/store"})
    with pytest.raises(OptionError, match="nameServer: excludes a directory"):
        LogOptions.parse({"path": "/data/store", "nameServer": "a:1"}, batch=True)
    text = '{"Plain": {"broker-a": {"0": 1}}}'
    with pytest.raises(OffsetError, match="brokerName"):
        LogOptions.parse({"path": "/d/s", "startingOffsets": text}, batch=True)
    assert directory_of({"path": "file:///data/a%20b"}) == "/data/a b"
    assert directory_of({"topic": "orders"}) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights away")
def test_a_directory_without_permission_says_so(tmp_path: Path) -> None:
    root, _ = unpacked("4.6.1-clean", tmp_path)
    (root / "commitlog").chmod(0o700)
    for path in [root, *root.parents]:
        if path.stat().st_uid == 0 and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o055)
    script = f"from pyrmq import arrow\narrow.read_log({str(root)!r})"
    done = subprocess.run(
        [sys.executable, "-c", f"import os, pyrmq.arrow.log_files; os.setuid(65534)\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "PermissionError" in done.stderr
    assert "commitlog" in done.stderr


def test_a_file_that_retention_deletes_after_planning_is_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, messages = unpacked("5.5.0-clean", tmp_path)
    given = {"path": str(root), "topic": "Plain"}
    schema = arrow.read_log(root, columns=["commitLogOffset"]).schema
    for lenient in (False, True):
        options = LogOptions.parse({**given, "failOnDataLoss": str(not lenient)}, batch=True)
        pieces, _ = plan(options)
        if not lenient:
            (root / "commitlog" / f"{0:020}").rename(tmp_path / "aside")
            with pytest.raises(DataLossError, match="retention deleted it after"):
                list(log_batches(options, schema, pieces))
            (tmp_path / "aside").rename(root / "commitlog" / f"{0:020}")
            continue
        (root / "commitlog" / f"{0:020}").unlink()
        table = pa.Table.from_batches(log_batches(options, schema, pieces), schema)
        left = {m["commitLogOffset"] for m in messages if m["topic"] == "Plain"}
        assert set(table.column(0).to_pylist()) == {at for at in left if at >= SEGMENT}
        assert "left out" in caplog.text
    # A new read begins at the oldest file that is there.
    assert arrow.read_log(root, "Plain").num_rows == table.num_rows


def test_a_later_read_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    with cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as ours:
        options = LogOptions.parse({"path": str(tmp_path / "store"), "topic": "On"}, batch=True)
        schema = pa.schema([pa.field("body", pa.binary())])
        at, seen = None, []
        with Producer(name_server=ours.name_server, group="on") as producer:
            for number in range(5):
                for _ in range(60):
                    producer.send("On", b"%d" % number * 300)
                pieces, at = plan(options, start=at)
                for rows in log_batches(options, schema, pieces):
                    seen += rows.column(0).to_pylist()
                assert seen == [b"%d" % n * 300 for n in range(number + 1) for _ in range(60)]
        capped, end = plan(options, most_records=10)
        assert sum(piece.records for piece in capped) == 10
        rest, whole = plan(options, start=end)
        assert whole == at
        assert sum(piece.records for piece in rest) == sum(p.records for p in plan(options)[0]) - 10
        with pytest.raises(DataLossError, match="was read up to"):
            plan(options, start=at + 10 * SEGMENT)


def test_a_log_of_one_message_is_whole() -> None:
    with cluster() as running:
        with Producer(name_server=running.name_server) as producer:
            producer.send("one", b"only")
        rows = arrow.read_log(running.store, "one")
        assert rows["body"].to_pylist() == [b"only"]
