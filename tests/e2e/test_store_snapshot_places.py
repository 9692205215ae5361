"""Where `pyrmq store snapshot` and `restore` write, and stores whose last write was cut off."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.e2e.snapshots import KIB, OPTIONS, SEGMENT, last_object, stored

from pyrmq import Producer
from pyrmq.cli import main
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(store=tmp_path / "live", **OPTIONS) as found:  # type: ignore[arg-type]
        yield found


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The store of a broker that was killed with ten messages."""
    with cluster(store=tmp_path / "live", processes=True, **OPTIONS) as found:  # type: ignore[arg-type]
        send(found, [str(number) for number in range(10)])
        found.brokers[0].kill()
        return found.store


def send(running: Cluster, bodies: list[str]) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for body in bodies:
            producer.send("orders", body)


class Usage(NamedTuple):
    """What `shutil.disk_usage` answers."""

    total: int
    used: int
    free: int


def test_a_restore_keeps_an_empty_directory_with_its_mode(running: Cluster, tmp_path: Path) -> None:
    send(running, ["one", "two"])
    assert main(["store", "snapshot", str(running.store), str(tmp_path / "kept")]) == 0
    target = tmp_path / "again" / "store"
    target.mkdir(parents=True)
    target.chmod(0o700)
    before = target.stat()
    assert main(["store", "restore", str(tmp_path / "kept"), str(target)]) == 0
    after = target.stat()
    assert (after.st_ino, stat.S_IMODE(after.st_mode)) == (before.st_ino, 0o700)
    assert [path.name for path in target.iterdir() if path.name.startswith(".")] == []
    with cluster(store=tmp_path / "again", **OPTIONS) as restored:  # type: ignore[arg-type]
        assert sorted(stored(restored)) == ["one", "two"]


def test_a_restore_that_fails_leaves_the_empty_directory_empty(
    running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(running, ["one", "two"])
    assert main(["store", "snapshot", str(running.store), str(tmp_path / "kept")]) == 0
    (segment,) = (tmp_path / "kept" / "commitlog").iterdir()
    segment.write_bytes(bytes(SEGMENT))
    target = tmp_path / "again"
    target.mkdir()
    assert main(["store", "restore", str(tmp_path / "kept"), str(target)]) == 2
    assert "it was changed" in capsys.readouterr().err
    assert list(target.iterdir()) == []


def test_a_target_inside_the_store_is_refused(
    running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(running, ["one"])
    for place in ("kept", "consumequeue/kept", "commitlog/kept"):
        assert main(["store", "snapshot", str(running.store), str(running.store / place)]) == 2
        assert "outside the store" in capsys.readouterr().err
        assert not (running.store / place).exists()
    (tmp_path / "link").symlink_to(running.store)
    assert main(["store", "snapshot", str(running.store), str(tmp_path / "link" / "kept")]) == 2
    assert not (running.store / "kept").exists()


def test_space_is_asked_for_where_links_are_refused_on_the_same_file_system(
    running: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    send(running, [f"{number} " + "x" * 8 * KIB for number in range(80)])

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        patch.setattr(shutil, "disk_usage", lambda _: Usage(SEGMENT, 0, SEGMENT))
        assert main(["store", "snapshot", str(running.store), str(tmp_path / "kept")]) == 1
        assert "are needed" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(SEGMENT, 0, SEGMENT))
    assert main(["store", "snapshot", str(running.store), str(tmp_path / "kept"), "--json"]) == 0
    assert last_object(capsys)["linked_bytes"] >= SEGMENT


def end_of_log(store: Path) -> tuple[Path, bytes]:
    """The file with the newest record, and its bytes up to the end of that."""
    files = sorted((store / "commitlog").iterdir())
    (file,) = [file for file in files if any(file.read_bytes())][-1:]
    return file, file.read_bytes().rstrip(b"\0")


@pytest.mark.parametrize("how", ["beginning", "sector"])
def test_the_last_write_of_a_killed_broker_may_be_cut_off(
    killed: Path, tmp_path: Path, how: str
) -> None:
    file, data = end_of_log(killed)
    record = data[: int.from_bytes(data[:4], "big")]
    with file.open("r+b") as log:
        log.seek(len(data))
        log.write(record[:90] if how == "beginning" else bytes(100) + b"\1" * 50)
    assert main(["store", "snapshot", str(killed), str(tmp_path / "kept")]) == 0
    store = tmp_path / "again" / "store"
    assert main(["store", "restore", str(tmp_path / "kept"), str(store)]) == 0
    with cluster(store=tmp_path / "again", **OPTIONS) as restored:  # type: ignore[arg-type]
        assert len(stored(restored)) == 10


def test_damage_with_good_records_behind_it_or_after_a_clean_stop_is_refused(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data = end_of_log(killed)
    # Nothing of it may be older than the checkpoint, which is whole.
    (killed / "checkpoint").unlink()
    with file.open("r+b") as log:
        log.seek(data.index(b"\xda\xa3\x20\xa7", 1000))
        log.write(b"\1\1\1\1")
    assert main(["store", "snapshot", str(killed), str(tmp_path / "kept")]) == 2
    assert "is damaged at" in capsys.readouterr().err
    with file.open("r+b") as log:
        log.write(data)
        log.write(data[:90])
    (killed / "abort").unlink()
    assert main(["store", "snapshot", str(killed), str(tmp_path / "kept")]) == 2
    assert not (tmp_path / "kept").exists()
