"""`pyrmq store snapshot`, `restore`, `usage`, of a running broker and of a stopped one."""

from __future__ import annotations

import io
import json
import lzma
import os
import shutil
import tarfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.e2e.snapshots import (
    KIB,
    OPTIONS,
    SEGMENT,
    last_object,
    stored,
    write_full_log,
)
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.cli import main
from pyrmq.cli.log.directory import StoreDirectory
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOLDEN = Path(__file__).parent.parent / "golden" / "stores"


class Load:
    """Threads that send numbered messages, and which of them were acknowledged.

    Args:
        running: the cluster.
        pause: seconds between two messages of a thread.
    """

    def __init__(self, running: Cluster, pause: float = 0.0) -> None:
        self._running = running
        self._pause = pause
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._acknowledged: set[str] = set()
        self._threads = [threading.Thread(target=self._send, args=(one,)) for one in range(3)]

    def _send(self, thread: int) -> None:
        with Producer(name_server=self._running.name_server) as producer:
            number = 0
            while not self._stop.wait(self._pause):
                name = f"{thread}-{number}"
                producer.send("orders", f"{name} " + "x" * (number % 3000), keys=name)
                with self._lock:
                    self._acknowledged.add(name)
                number += 1

    @property
    def acknowledged(self) -> set[str]:
        """The first words of the bodies that a broker has acknowledged so far."""
        with self._lock:
            return set(self._acknowledged)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._acknowledged)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def running() -> Iterator[Cluster]:
    with cluster(**OPTIONS) as found:  # type: ignore[arg-type]
        yield found


def first_word(body: str) -> str:
    return body.partition(" ")[0]


def check_snapshot_under_load(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    await_load: Callable[[Load], None],
    *,
    pause: float = 0.0,
    seconds: float = 20.0,
    **more: object,
) -> None:
    """Take a snapshot under load, and compare what a broker serves of it with its position.

    Args:
        folder: where the stores go.
        capsys: the output of commands.
        await_load: waits until the snapshot is to be taken.
        pause: of the load.
        seconds: in which all messages can be read.
        more: options of the brokers.
    """
    options: dict[str, Any] = {**OPTIONS, **more}
    snapshot, again = folder / "kept", folder / "again"
    with cluster(store=folder / "live", **options) as running:
        with Load(running, pause) as load:
            await_load(load)
            before = load.acknowledged
            words = ["store", "snapshot", str(running.store), str(snapshot), "--json"]
            assert main(words) == 0
            made = last_object(capsys)
            await_true(lambda: load.count > len(before) + 200, 20)
        everything = stored(running, name=first_word, seconds=seconds)
        assert load.acknowledged <= set(everything)
    expected = {name for name, position in everything.items() if position < made["position"]}
    assert before <= expected < set(everything)
    assert main(["store", "restore", str(snapshot), str(again / "store"), "--json"]) == 0
    assert last_object(capsys)["position"] == made["position"]
    with cluster(store=again, **options) as restored:
        assert set(stored(restored, name=first_word, seconds=seconds)) == expected
        with Producer(name_server=restored.name_server) as producer:
            at = producer.send("orders", "after the restore").queue_offset
            assert at is not None
        assert "after" in stored(restored, name=first_word, seconds=seconds)
    assert main(["log", "verify", str(again / "store")]) == 0
    assert main(["log", "verify", str(snapshot)]) == 0


def test_a_snapshot_under_load_has_exactly_the_messages_up_to_its_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def await_load(load: Load) -> None:
        await_true(lambda: load.count > 1500, 20)

    check_snapshot_under_load(tmp_path, capsys, await_load)


@pytest.mark.nightly
@pytest.mark.timeout(3 * 3600)
def test_a_snapshot_after_a_long_load_has_exactly_the_messages_up_to_its_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    """An hour of it (`--snapshot-minutes=60`) is a million messages and 2 GB."""
    minutes: float = pytestconfig.getoption("--snapshot-minutes")

    def await_load(load: Load) -> None:
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            # A load that has ended would be none.
            sent = load.count
            await_true(lambda sent=sent: load.count > sent, 20)
            time.sleep(1)

    check_snapshot_under_load(
        tmp_path,
        capsys,
        await_load,
        pause=0.01,
        seconds=600,
        mapped_file_size_commit_log=16 * KIB * KIB,
    )


@pytest.mark.nightly
def test_a_snapshot_of_10_gb_beside_a_broker_is_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size, files = 128 << 20, 80
    write_full_log(tmp_path / "store", files, size)
    snapshot, again = tmp_path / "kept", tmp_path / "again"
    with cluster(store=tmp_path, mapped_file_size_commit_log=size) as running:
        with Producer(name_server=running.name_server) as producer:
            for number in range(100):
                producer.send("orders", f"{number}")
            # Now a checkpoint covers the log, as it does once a broker has written for a while.
            running.stop_broker()
            running.start_broker()
            began = time.monotonic()
            assert main(["store", "snapshot", str(running.store), str(snapshot), "--json"]) == 0
            # Copies of these files take a minute, even of holes.
            assert time.monotonic() - began < 10
            producer.send("orders", "after the snapshot")
        made = last_object(capsys)
    assert made["linked_bytes"] == files * size > 10 * 10**9
    assert 0 < made["copied_bytes"] < 1 << 20
    assert main(["store", "restore", str(snapshot), str(again / "store")]) == 0
    with cluster(store=again, mapped_file_size_commit_log=size) as restored:
        assert set(stored(restored)) == {f"{number}" for number in range(100)}
        links = [path.stat().st_nlink for path in (again / "store" / "commitlog").iterdir()]
    assert sorted(links) == [1] + [3] * files


def test_full_segments_are_links_that_no_broker_writes(
    running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(120):
            producer.send("orders", f"{number} " + "x" * 8 * KIB)
    snapshot = tmp_path / "kept"
    assert main(["store", "snapshot", str(running.store), str(snapshot), "--json"]) == 0
    made = last_object(capsys)
    assert made["linked_bytes"] == made["position"] // SEGMENT * SEGMENT >= 3 * SEGMENT
    assert made["copied_bytes"] == made["position"] % SEGMENT
    links = {
        segment.path.name: segment.path.stat().st_nlink
        for segment in StoreDirectory(str(snapshot)).segments()
    }
    assert sorted(links.values()) == [1] + [2] * (made["linked_bytes"] // SEGMENT)
    bytes_before = {name: (snapshot / "commitlog" / name).read_bytes() for name in links}
    # Both continue, independently.
    running.stop_broker()
    running.start_broker()
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        producer.send("orders", "one more")
    restored = tmp_path / "again" / "store"
    assert main(["store", "restore", str(snapshot), str(restored)]) == 0
    with cluster(store=tmp_path / "again", **OPTIONS) as other:  # type: ignore[arg-type]
        assert len(stored(other)) == 120
        with Producer(name_server=other.name_server, compress_over_bytes=None) as producer:
            for number in range(60):
                producer.send("orders", f"again {number} " + "x" * 8 * KIB)
    for name, data in bytes_before.items():
        assert (snapshot / "commitlog" / name).read_bytes() == data


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_start_on_a_restored_store_copies_only_links_that_may_not_be_durable(
    running: Cluster, tmp_path: Path, *, has_checkpoint: bool
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(160):
            producer.send("orders", f"{number} " + "x" * 8 * KIB)
    # The checkpoint covers the log, as it does a second after each write.
    running.stop_broker()
    running.start_broker()
    snapshot, restored = tmp_path / "kept", tmp_path / "again" / "store"
    assert main(["store", "snapshot", str(running.store), str(snapshot)]) == 0
    *full, _ = StoreDirectory(str(snapshot)).segments()
    assert len(full) >= 4
    for segment in full[:2]:
        # Rounds of the disk are at most a minute apart: these were durable three minutes later.
        long_ago = time.time() - 300
        os.utime(segment.path, (long_ago, long_ago))
    if not has_checkpoint:
        (snapshot / "checkpoint").unlink()
    assert main(["store", "restore", str(snapshot), str(restored)]) == 0
    linked = {segment.path.name for segment in full}
    with cluster(store=tmp_path / "again", **OPTIONS) as other:  # type: ignore[arg-type]
        assert len(stored(other)) == 160
    shared = {name for name in linked if (restored / "commitlog" / name).stat().st_nlink == 3}
    assert shared == ({segment.path.name for segment in full[:2]}, linked)[has_checkpoint]


def test_groups_offsets_and_topics_come_with_it(running: Cluster, tmp_path: Path) -> None:
    with Admin(name_server=running.name_server) as admin:
        admin.create_topic("menu", queues=1)
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(10):
            producer.send("menu", str(number), keys=f"key-{number}")
    with PullConsumer(name_server=running.name_server, group="kitchen", start="first") as consumer:
        consumer.subscribe("menu")
        taken: list[object] = []

        def has_four() -> bool:
            taken.extend(consumer.poll(4 - len(taken), 1))
            return len(taken) == 4

        await_true(has_four, 20)
        consumer.commit()
    running.stop_broker()
    snapshot, restored = tmp_path / "kept", tmp_path / "again" / "store"
    assert main(["store", "snapshot", str(running.store), str(snapshot)]) == 0
    assert main(["store", "restore", str(snapshot), str(restored)]) == 0
    with (
        cluster(store=tmp_path / "again", **OPTIONS) as other,  # type: ignore[arg-type]
        Admin(name_server=other.name_server) as admin,
    ):
        (offset,) = admin.consumer_progress("kitchen", "menu").values()
        assert (offset.committed, offset.last) == (4, 10)
        # The index is filled again from the log.
        await_true(lambda: len(admin.query_messages("menu", "key-7")) == 1, 20)


def test_another_file_system_gets_copies(
    running: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(80):
            producer.send("orders", f"{number} " + "x" * 8 * KIB)

    def elsewhere(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", elsewhere)
    assert main(["store", "snapshot", str(running.store), str(tmp_path / "s"), "--json"]) == 0
    made = last_object(capsys)
    assert made["linked_bytes"] == 0
    assert made["copied_bytes"] == made["position"]


def test_bad_targets_and_sources_are_named_and_leave_nothing(
    running: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        producer.send("orders", "x")
    store = str(running.store)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    assert main(["store", "snapshot", store, str(taken)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["store", "restore", store, str(tmp_path / "r")]) == 2
    assert "is not a snapshot" in capsys.readouterr().err
    assert main(["store", "snapshot", str(tmp_path), str(tmp_path / "s")]) == 2
    assert "is not a store" in capsys.readouterr().err
    assert main(["store", "snapshot", store, str(tmp_path / "good")]) == 0
    assert main(["store", "restore", str(tmp_path / "good"), str(taken)]) == 2
    assert "is not empty" in capsys.readouterr().err

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert main(["store", "snapshot", store, str(tmp_path / "s")]) == 1
    assert f"{tmp_path} is full" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good", "taken"]


def test_a_snapshot_that_was_changed_is_not_restored(
    running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(10):
            producer.send("orders", str(number))
    snapshot = tmp_path / "kept"
    assert main(["store", "snapshot", str(running.store), str(snapshot)]) == 0
    note = json.loads((snapshot / "snapshot.json").read_text())
    (segment,) = (snapshot / "commitlog").iterdir()
    assert 0 < note["position"] < SEGMENT
    segment.write_bytes(bytes(SEGMENT))
    assert main(["store", "restore", str(snapshot), str(tmp_path / "r")]) == 2
    assert "pyrmq log verify" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_usage_by_topic_adds_up_to_the_log(
    running: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(30):
            producer.send(
                "large" if number % 3 == 0 else "small", "x" * (3000 if number % 3 == 0 else 10)
            )
    running.stop_broker()
    assert main(["store", "usage", str(running.store), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    topics = {row["topic"]: row for row in rows[:-1]}
    assert (topics["large"]["messages"], topics["small"]["messages"]) == (10, 20)
    assert rows[0]["topic"] == "large"
    assert topics["large"]["log_bytes"] > 30_000
    assert rows[-1]["total"]["log"] >= sum(row["log_bytes"] for row in topics.values())
    assert main(["store", "usage", str(running.store)]) == 0
    assert "large" in capsys.readouterr().out


def test_a_repair_of_the_original_leaves_the_snapshot_as_it_is(
    running: Cluster, tmp_path: Path
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(80):
            producer.send("orders", f"{number} " + "x" * 8 * KIB)
    running.stop_broker()
    snapshot = tmp_path / "kept"
    assert main(["store", "snapshot", str(running.store), str(snapshot)]) == 0
    first = sorted((running.store / "commitlog").iterdir())[0]
    with first.open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    shared = (snapshot / "commitlog" / first.name).read_bytes()
    assert main(["log", "repair", str(running.store), "--choice", "skip"]) == 0
    assert (snapshot / "commitlog" / first.name).read_bytes() == shared
    assert first.read_bytes() != shared
    shutil.rmtree(snapshot)


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("version", ["4.6.1", "4.9.7", "5.5.0"])
def test_a_java_brokers_store_is_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, end: str
) -> None:
    data = lzma.decompress((GOLDEN / f"{version}-{end}.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(tmp_path / "java", filter="data")
    (log,) = tmp_path.rglob("commitlog")
    assert main(["store", "snapshot", str(log.parent), str(tmp_path / "kept")]) == 0
    assert main(["store", "restore", str(tmp_path / "kept"), str(tmp_path / "again")]) == 0
    capsys.readouterr()
    exports = []
    for store in (log.parent, tmp_path / "again"):
        assert main(["log", "export", str(store)]) == 0
        exports.append(capsys.readouterr().out.splitlines())
    assert exports[0] == exports[1]
    assert len(exports[0]) > 50
    topics = log.parent / "config" / "topics.json"
    assert (tmp_path / "again" / "config" / "topics.json").read_bytes() == topics.read_bytes()


def test_retention_that_deletes_what_is_linked_already_leaves_no_gap(
    running: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for number in range(160):
            producer.send("orders", f"{number} " + "x" * 8 * KIB)
    running.stop_broker()
    segments = StoreDirectory(str(running.store)).segments()
    link, linked = os.link, []

    def link_while_files_go(source: Path, target: Path) -> None:
        link(source, target)
        linked.append(target)
        if len(linked) == 1:
            for segment in segments[:3]:
                segment.path.unlink()

    monkeypatch.setattr(os, "link", link_while_files_go)
    snapshot, again = tmp_path / "kept", tmp_path / "again"
    assert main(["store", "snapshot", str(running.store), str(snapshot), "--json"]) == 0
    monkeypatch.undo()
    made = last_object(capsys)
    kept = StoreDirectory(str(snapshot)).segments()
    assert [kept[0].base, made["start"]] == [segments[3].base] * 2
    assert main(["store", "restore", str(snapshot), str(again)]) == 0
