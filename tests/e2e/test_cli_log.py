"""`pyrmq log` on stores of ours and of real brokers, whole and damaged."""

from __future__ import annotations

import base64
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import threading
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.e2e.ci import skip_outside_ci
from tests.e2e.wire import ask

from pyrmq import Admin, Producer, PullConsumer, TransactionProducer, TransactionState
from pyrmq.cli import main
from pyrmq.cli.log import repair
from pyrmq.cli.log.directory import StoreDirectory
from pyrmq.codes import RequestCode
from pyrmq.errors import ServerError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq.cli.log.directory import Segment

GOLDEN = Path(__file__).parent.parent / "golden" / "stores"
SEGMENT = 64 * 1024
COUNT = 600
TOPICS = ("log-a", "log-b")


@pytest.fixture
def pyrmq(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Return a function that runs `pyrmq log` and returns the lines of its output."""

    def run(*words: str | Path, status: int = 0) -> list[str]:
        assert main(["log", *map(str, words)]) == status
        return capsys.readouterr().out.splitlines()

    return run


def body(number: int) -> bytes:
    return f"message {number} ".encode() * 8


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A stopped store of several small files: two topics, keys and tags on every third."""
    with (
        cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as running,
        Producer(name_server=running.name_server, group="log") as producer,
    ):
        for number in range(COUNT):
            extras: dict[str, Any] = (
                {"keys": f"k{number}", "tags": "third"} if number % 3 == 0 else {}
            )
            producer.send(TOPICS[number % 2], body(number), **extras)
    return tmp_path


def read(home: Path) -> set[bytes]:
    """Return everything that a broker on the store serves."""
    seen: set[bytes] = set()
    with (
        cluster(store=home, mapped_file_size_commit_log=SEGMENT) as running,
        PullConsumer(name_server=running.name_server, group="log", start="first") as consumer,
    ):
        queues = [queue for topic in TOPICS for queue in consumer.queues(topic)]
        consumer.assign(dict.fromkeys(queues, 0))
        ends = {queue: consumer.bounds(queue)[1] for queue in queues}
        while any(consumer.position(queue) < end for queue, end in ends.items()):
            seen |= {bytes(message.body) for message in consumer.poll(timeout=5.0)}
    return seen


def files(home: Path) -> list[Path]:
    return sorted((home / "store" / "commitlog").iterdir())


def damage(file: Path, number: int) -> None:
    """Change one byte of a message's body."""
    data = file.read_bytes()
    place = data.index(body(number)) + 5
    file.write_bytes(data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :])


def number_in(file: Path, share: float) -> int:
    """Return the number of a message in a file, at about this share of its length."""
    data = file.read_bytes()
    at = data.index(b"message ", int(len(data) * share))
    return int(data[at:].split()[1])


def test_a_whole_store_is_inspected_and_verified(
    pyrmq: Callable[..., list[str]], home: Path
) -> None:
    rows = [json.loads(line) for line in pyrmq("inspect", home / "store", "--json")]
    assert [row["file"] for row in rows] == [file.name for file in files(home)]
    assert len(rows) > 2
    assert sum(row["records"] for row in rows) == COUNT
    assert all(row["damage"] is None for row in rows)
    by_topic = [json.loads(line) for line in pyrmq("inspect", home / "store", "--topics", "--json")]
    assert [(row["topic"], row["records"]) for row in by_topic] == [(t, COUNT // 2) for t in TOPICS]
    assert any("stopped cleanly" in line for line in pyrmq("inspect", home / "store"))
    assert pyrmq("verify", home / "store") == [f"{COUNT} records, {COUNT} queue entries: all well"]


def test_records_of_a_deleted_topic_need_no_entry(
    pyrmq: Callable[..., list[str]], home: Path
) -> None:
    with (
        cluster(store=home, mapped_file_size_commit_log=SEGMENT) as running,
        Admin(name_server=running.name_server) as admin,
        Producer(name_server=running.name_server, group="log") as producer,
    ):
        admin.delete_topic(TOPICS[0])
        producer.send(TOPICS[1], b"one more")
    entries = COUNT // 2 + 1
    assert pyrmq("verify", home / "store") == [
        f"{COUNT + 1} records, {entries} queue entries: all well"
    ]
    with cluster(store=home, mapped_file_size_commit_log=SEGMENT):
        assert TOPICS[0] not in {path.name for path in (home / "store/consumequeue").iterdir()}


def test_messages_are_exported_by_topic_key_and_time(
    pyrmq: Callable[..., list[str]], home: Path, tmp_path: Path
) -> None:
    everything = [json.loads(line) for line in pyrmq("export", home / "store")]
    assert [row["body"].encode() for row in everything] == [body(n) for n in range(COUNT)]
    (one,) = [json.loads(line) for line in pyrmq("export", home / "store", "--key", "k9")]
    assert (one["topic"], one["keys"], one["tags"]) == ("log-b", ["k9"], "third")
    middle = str(everything[COUNT // 2]["stored_ms"])
    early = pyrmq("export", home / "store", "--to", middle)
    late = pyrmq("export", home / "store", "--from", middle)
    assert len(early) + len(late) == COUNT
    assert len(pyrmq("export", home / "store", "--topic", "log-a", "--count", "7")) == 7
    arrow = tmp_path / "out.arrow"
    assert pyrmq("export", home / "store", "--arrow", arrow) == [f"{COUNT} messages in {arrow}"]
    with pa.OSFile(str(arrow)) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table["body"].to_pylist() == [body(n) for n in range(COUNT)]


def test_a_wrong_time_is_refused(
    pyrmq: Callable[..., list[str]], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "export", str(home / "store"), "--from", "yesterday"]) == 2
    assert "must be a time such as 2026-01-31T12:00" in capsys.readouterr().err


def test_damage_is_found_and_what_comes_behind_it(
    pyrmq: Callable[..., list[str]], home: Path
) -> None:
    file = files(home)[1]
    number = number_in(file, 0.5)
    damage(file, number)
    (found, queue) = [
        json.loads(line) for line in pyrmq("verify", home / "store", "--json", status=1)
    ]
    assert found["kind"] == "damage"
    assert found["where"] == file.name
    assert "valid again at" in found["what"]
    assert (queue["kind"], queue["where"].split()[0]) == ("queue", TOPICS[number % 2])
    exported = {json.loads(line)["body"].encode() for line in pyrmq("export", home / "store")}
    assert exported == {body(n) for n in range(COUNT) if n != number}


def test_a_record_of_a_newer_version_is_named(pyrmq: Callable[..., list[str]], home: Path) -> None:
    file = files(home)[1]
    data = bytearray(file.read_bytes())
    data[7] = 0xAF
    file.write_bytes(bytes(data))
    lines = pyrmq("verify", home / "store", "--json", status=1)
    found = json.loads(lines[0])
    assert "a record of an unknown kind (magic DAA320AF): a newer version wrote it" in found["what"]
    # A start after this clean stop reads none of it; a start after a crash does.
    for name in ("queueEnds", "checkpoint"):
        (home / "store" / name).unlink()
    (home / "store" / "abort").write_text("1")
    with (
        pytest.raises(
            ServerError,
            match=rf"{file.name} holds a record of an unknown kind.*nothing was changed",
        ),
        cluster(store=home, mapped_file_size_commit_log=SEGMENT),
    ):
        pass


def test_a_lost_queue_entry_is_found(pyrmq: Callable[..., list[str]], home: Path) -> None:
    queue = next((home / "store" / "consumequeue" / "log-a").glob("*/*"))
    data = bytearray(queue.read_bytes())
    data[20:40] = bytes(20)
    queue.write_bytes(bytes(data))
    (row,) = [json.loads(line) for line in pyrmq("verify", home / "store", "--json", status=1)]
    assert (row["kind"], row["what"]) == ("entry", "no entry in the queue")


def test_entries_that_the_next_start_writes_are_no_problem(
    pyrmq: Callable[..., list[str]], home: Path
) -> None:
    store = home / "store"
    killed(home)
    queue = next((store / "consumequeue" / "log-a").glob("*/*"))
    data = bytearray(queue.read_bytes())
    end = len(data.rstrip(b"\0"))
    data[end - end % 20 - 40 : end + 20] = bytes(60 + end % 20)
    queue.write_bytes(bytes(data))
    (line,) = pyrmq("verify", store)
    assert line.startswith(f"{COUNT} records")
    assert line.endswith("all well")
    # After a clean stop, the same is a loss.
    (store / "abort").unlink()
    assert "no entry in the queue" in "".join(pyrmq("verify", store, status=1))


def test_entries_that_the_checkpoint_covers_must_be_there_after_a_crash(
    pyrmq: Callable[..., list[str]], home: Path
) -> None:
    store = home / "store"
    (store / "abort").write_text("1\n")
    queue = next((store / "consumequeue" / "log-a").glob("*/*"))
    data = bytearray(queue.read_bytes())
    data[20:40] = bytes(20)
    queue.write_bytes(bytes(data))
    assert "no entry in the queue" in "".join(pyrmq("verify", store, status=1))


@pytest.mark.parametrize("choice", ["cut", "skip"])
def test_a_repaired_store_serves_what_the_choice_keeps(
    pyrmq: Callable[..., list[str]], home: Path, choice: str
) -> None:
    file = files(home)[1]
    number = number_in(file, 0.5)
    inside = range(number + 1, number_in(files(home)[2], 0.0))
    damage(file, number)
    before = {path: path.read_bytes() for path in files(home)}
    cut, skip = [json.loads(line) for line in pyrmq("repair", home / "store", "--json", status=1)]
    assert (cut["good_records_lost"], skip["good_records_lost"]) == (
        COUNT - number - 1,
        len(inside),
    )
    assert {path: path.read_bytes() for path in files(home)} == before
    pyrmq("repair", home / "store", "--choice", choice)
    assert pyrmq("repair", home / "store") == ["nothing to repair: every record is sound"]
    kept = set(range(number)) if choice == "cut" else set(range(COUNT)) - {number, *inside}
    assert read(home) == {body(n) for n in kept}
    (copies,) = (home / "store").glob("repair-*")
    assert any(path.name.startswith(file.name) for path in copies.iterdir())


def killed(home: Path) -> None:
    """Make the store look as if a kill had stopped it before its first checkpoint."""
    for name in ("queueEnds", "checkpoint"):
        (home / "store" / name).unlink(missing_ok=True)
    abort = home / "store" / "abort"
    abort.touch()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    system = f"system {boot} {abort.stat().st_dev} {abort.stat().st_ino}\n"
    abort.write_text("1\nnul records from 0\n" + system)


def is_refused(home: Path, match: str) -> None:
    with (
        pytest.raises(ServerError, match=match),
        cluster(store=home, mapped_file_size_commit_log=SEGMENT),
    ):
        pass


@pytest.mark.parametrize("choice", ["cut", "skip"])
def test_a_log_that_lost_a_page_is_repaired(
    pyrmq: Callable[..., list[str]], home: Path, choice: str
) -> None:
    file = files(home)[1]
    data = bytearray(file.read_bytes())
    data[8192:12288] = bytes(4096)
    file.write_bytes(bytes(data))
    killed(home)
    is_refused(home, f"{file.name}.*a good record follows")
    lost = {n for n in range(COUNT) if not any(body(n) in one.read_bytes() for one in files(home))}
    assert lost
    pyrmq("repair", home / "store", "--choice", choice)
    served = read(home)
    last = max(lost) if choice == "cut" else number_in(files(home)[2], 0.0) - 1
    expected = {body(n) for n in range(COUNT) if n < min(lost) or (choice == "skip" and n > last)}
    # Whether the first record that the page has a part of is still whole depends on its length.
    assert expected - {body(min(lost) - 1)} <= served <= expected
    assert pyrmq("repair", home / "store") == ["nothing to repair: every record is sound"]


def test_a_record_that_lost_a_sector_of_its_properties_is_repaired(
    pyrmq: Callable[..., list[str]], tmp_path: Path
) -> None:
    with (
        cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as running,
        Producer(name_server=running.name_server, group="log") as producer,
    ):
        for number in range(9):
            # Zero bytes of a sender look like a lost sector, but the broker notes them.
            filler = "\0" if number == 2 else "p"
            producer.send(TOPICS[number % 2], body(number), properties={"long": filler * 3000})
    killed(tmp_path)
    assert read(tmp_path) == {body(number) for number in range(9)}
    killed(tmp_path)
    assert pyrmq("repair", tmp_path / "store") == ["nothing to repair: every record is sound"]
    (file,) = [one for one in files(tmp_path) if any(one.read_bytes()[:8])]
    data = bytearray(file.read_bytes())
    sector = (data.index(body(5)) + len(body(5)) + 1024) // 512 * 512
    data[sector : sector + 512] = bytes(512)
    file.write_bytes(bytes(data))
    is_refused(tmp_path, "a sector of a record is missing .*a good record follows")
    (row, _queue) = [
        json.loads(line) for line in pyrmq("verify", tmp_path / "store", "--json", status=1)
    ]
    assert "a sector of the record is missing" in row["what"]
    pyrmq("repair", tmp_path / "store", "--choice", "cut")
    assert read(tmp_path) == {body(number) for number in range(5)}


def test_a_store_that_is_in_use_is_read_but_not_repaired(tmp_path: Path) -> None:
    with (
        cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as running,
        Producer(name_server=running.name_server, group="log") as producer,
    ):
        for number in range(COUNT):
            producer.send("log-a", body(number))

        def log(*words: str) -> subprocess.CompletedProcess[str]:
            # In another process, because the lock is between processes.
            command = [sys.executable, "-m", "pyrmq", "log", words[0], str(tmp_path / "store")]
            return subprocess.run(
                [*command, *words[1:]], capture_output=True, text=True, check=False, timeout=20
            )

        done = log("verify")
        assert (done.returncode, done.stdout.split(",")[0]) == (0, f"{COUNT} records")
        assert "a broker runs on it" in log("inspect").stdout
        damage(files(tmp_path)[0], 3)
        refused = log("repair", "--choice", "cut")
        assert refused.returncode == 2
        assert "a broker runs on" in refused.stderr


def test_a_body_that_is_no_text_is_exported_as_it_is(
    pyrmq: Callable[..., list[str]], tmp_path: Path
) -> None:
    bodies = [b"text", b"\xff\x00\xfe", b"\\xff", "äöü".encode()]
    with (
        cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as running,
        Producer(name_server=running.name_server, group="log") as producer,
    ):
        for one in bodies:
            producer.send("log-a", one)
    rows = [json.loads(line) for line in pyrmq("export", tmp_path / "store")]
    read = [
        base64.b64decode(row["body_base64"]) if "body_base64" in row else row["body"].encode()
        for row in rows
    ]
    assert read == bodies


def test_what_no_consumer_sees_is_marked_in_an_export(
    pyrmq: Callable[..., list[str]], tmp_path: Path
) -> None:
    with (
        cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as running,
        TransactionProducer(
            name_server=running.name_server,
            group="log",
            check=lambda _message: TransactionState.UNKNOWN,
        ) as producer,
    ):
        producer.send_in_transaction("log-a", b"kept", lambda _sent: TransactionState.COMMIT)
        producer.send_in_transaction("log-a", b"open", lambda _sent: TransactionState.UNKNOWN)
        producer.send("log-b", b"gone")
        ask(running.broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "log-b"})
    rows = [json.loads(line) for line in pyrmq("export", tmp_path / "store")]
    marks = {
        (row["body"], row["transaction"], row["deleted"])
        for row in rows
        if row["body"] in {"kept", "open", "gone"}
    }
    assert marks == {
        ("kept", "prepared", False),
        ("kept", "committed", False),
        ("open", "prepared", False),
        ("gone", None, True),
    }


def test_a_store_is_verified_beside_a_broker_that_writes_and_deletes(tmp_path: Path) -> None:
    with (
        cluster(
            store=tmp_path,
            mapped_file_size_commit_log=SEGMENT,
            mapped_file_size_consume_queue=2000,
            file_reserved_time=0,
        ) as running,
        Producer(name_server=running.name_server, group="log") as producer,
    ):
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                producer.send_batch("log-a", [body(number) for number in range(50)])
                ask(running.broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(4):
                command = [sys.executable, "-m", "pyrmq", "log", "verify", str(tmp_path / "store")]
                checked = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=60
                )
                assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
        finally:
            done.set()
            writer.join()


def opens_elsewhere(store: Path) -> bool:
    """Return whether a broker in another process could open the store."""
    code = f"from pyrmq import _core; _core.StoreLock({str(store / 'lock')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0 or b"BlockingIOError" in done.stderr
    return done.returncode == 0


def test_looking_at_a_store_in_its_own_broker_s_process_leaves_it_locked(
    pyrmq: Callable[..., list[str]], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as running:
        with Producer(name_server=running.name_server, group="log") as producer:
            producer.send("log-a", body(0))
        assert any("a broker runs on it" in line for line in pyrmq("inspect", store))
        assert main(["log", "repair", str(store), "--choice", "cut"]) == 2
        assert not opens_elsewhere(store)
    assert opens_elsewhere(store)


@pytest.mark.parametrize("when", ["before the cut", "after the cut"])
def test_a_repair_that_is_killed_leaves_a_store_that_looks_killed(
    pyrmq: Callable[..., list[str]], home: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    file = files(home)[1]
    number = number_in(file, 0.5)
    damage(file, number)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "before the cut":
            patch.setattr(repair, "own", die)
        else:
            patch.setattr(Path, "unlink", die)
        with pytest.raises(KeyboardInterrupt):
            repair.run(StoreDirectory(str(home / "store")), Namespace(choice="cut"))
    assert (home / "store" / "abort").exists()
    if when == "before the cut":
        is_refused(home, "damaged")
        (begun,) = (home / "store").glob("repair-*")
        begun.rename(home / "begun")
        pyrmq("repair", home / "store", "--choice", "cut")
    assert read(home) == {body(n) for n in range(number)}


def test_no_broker_gets_in_while_a_store_is_repaired(
    pyrmq: Callable[..., list[str]], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(files(home)[1], number_in(files(home)[1], 0.5))
    opened = []
    keep = repair._keep

    def look_and_keep(segment: Segment, position: int, copy: Path) -> None:
        opened.append(opens_elsewhere(home / "store"))
        keep(segment, position, copy)

    monkeypatch.setattr(repair, "_keep", look_and_keep)
    pyrmq("repair", home / "store", "--choice", "cut")
    assert opened == [False]
    assert opens_elsewhere(home / "store")


def test_programs_get_an_object_of_what_was_done(
    pyrmq: Callable[..., list[str]], home: Path, tmp_path: Path
) -> None:
    store, arrow = home / "store", tmp_path / "all.arrow"
    (done,) = pyrmq("export", store, "--arrow", arrow, "--json")
    assert json.loads(done) == {"file": str(arrow), "messages": COUNT}
    two = ("export", store, "--count", "2")
    assert pyrmq(*two, "--json") == pyrmq(*two)
    assert pyrmq("repair", store, "--json") == []
    assert pyrmq("repair", store, "--choice", "skip", "--json") == []
    file = files(home)[1]
    damage(file, number_in(file, 0.5))
    choices = [json.loads(line) for line in pyrmq("repair", store, "--json", status=1)]
    assert [one["choice"] for one in choices] == ["cut", "skip"]
    (done,) = pyrmq("repair", store, "--choice", "skip", "--json")
    kept = json.loads(done)
    assert (kept["choice"], kept["at"]) == ("skip", choices[1]["at"])
    assert any(Path(kept["kept"]).iterdir())


@pytest.mark.parametrize("name", ["4.6.1-clean", "4.9.7-kill", "5.5.0-clean", "5.5.0-kill"])
def test_stores_of_real_brokers_are_read(
    pyrmq: Callable[..., list[str]], tmp_path: Path, name: str
) -> None:
    with tarfile.open(
        fileobj=io.BytesIO(lzma.decompress((GOLDEN / f"{name}.tar.xz").read_bytes()))
    ) as archive:
        archive.extractall(tmp_path, filter="data")
    (log,) = tmp_path.rglob("commitlog")
    (line,) = pyrmq("verify", log.parent)
    assert line.endswith("all well")
    assert int(line.split()[0]) > 50
    assert len(pyrmq("export", log.parent)) == int(line.split()[0])


@pytest.mark.parametrize("kind", ["a directory", "not a regular file"])
def test_what_has_the_name_of_a_segment_and_is_no_file_is_refused(
    home: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = files(home)[1]
    place.rename(tmp_path / "moved")
    if kind == "a directory":
        place.mkdir()
    else:
        os.mkfifo(place)
    store, copied = str(home / "store"), str(tmp_path / "copy")
    for words in (
        ["log", "inspect", store],
        ["log", "verify", store],
        ["log", "export", store],
        ["log", "repair", store],
        ["store", "usage", store],
        ["store", "snapshot", store, copied],
    ):
        assert main(words) != 0
        assert f"{place} is {kind}, where a file of the store" in capsys.readouterr().err, words
    assert not Path(copied).exists()
    if kind == "a directory":
        place.rmdir()
    else:
        place.unlink()
    (tmp_path / "moved").rename(place)
    assert main(["log", "verify", store]) == 0


def test_a_pipe_among_the_files_of_a_queue_ends_a_snapshot(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = home / "store"
    pipe = store / "consumequeue" / TOPICS[0] / "0" / "strange"
    os.mkfifo(pipe)
    assert main(["store", "snapshot", str(store), str(tmp_path / "copy")]) != 0
    assert f"{pipe} is not a regular file" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_what_is_no_store_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(tmp_path)]) == 2
    assert f"{tmp_path} is not a store" in capsys.readouterr().err


def contents(home: Path) -> dict[Path, tuple[bytes, int]]:
    """Return every file with its bytes and modification time."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in home.rglob("*")
        if path.is_file()
    }


def reading_only(store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python on a store that it cannot write, by permissions or (as superuser) by mount."""
    command = [sys.executable, *words]
    if os.geteuid() == 0:
        mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 77; exec "$@"'
        command = ["unshare", "-rm", "sh", "-c", mount, str(store), *command]
    else:
        for path in [store, *store.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        skip_outside_ci("there is no unshare here")
    finally:
        if os.geteuid() != 0:
            for path in [store, *store.rglob("*")]:
                path.chmod(0o755)
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        skip_outside_ci(f"this system lets nobody mount: {done.stderr}")
    return done


def test_a_directory_that_may_only_be_read_is_read(home: Path) -> None:
    store = home / "store"
    before = contents(store)

    def log(*words: str) -> str:
        done = reading_only(store, "-m", "pyrmq", "log", words[0], str(store), *words[1:])
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    forbidden = reading_only(store, "-c", f"open({str(store / 'lock')!r}, 'r+')")
    assert "Error" in forbidden.stderr
    assert "stopped cleanly" in log("inspect")
    assert log("inspect", "--topics", "--json").count("\n") == len(TOPICS)
    assert log("verify") == f"{COUNT} records, {COUNT} queue entries: all well\n"
    exported = [json.loads(line)["body"].encode() for line in log("export").splitlines()]
    assert set(exported) == {body(number) for number in range(COUNT)}
    assert log("repair") == "nothing to repair: every record is sound\n"
    assert contents(store) == before


def test_damage_in_a_directory_that_may_only_be_read_is_shown_and_stays(home: Path) -> None:
    store = home / "store"
    damage(files(home)[1], number_in(files(home)[1], 0.5))
    before = contents(store)
    repair = ("-m", "pyrmq", "log", "repair", str(store))
    shown = reading_only(store, *repair)
    assert (shown.returncode, "nothing was changed" in shown.stdout) == (1, True), shown
    done = reading_only(store, *repair, "--choice", "cut")
    assert done.returncode == 1
    assert str(store) in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(store) == before


def test_a_running_broker_is_seen_without_the_right_to_write(tmp_path: Path) -> None:
    with cluster(store=tmp_path) as running, Producer(name_server=running.name_server) as producer:
        producer.send("log-a", b"x")
        lock = tmp_path / "store" / "lock"
        lock.chmod(0o444)
        inspect = [sys.executable, "-m", "pyrmq", "log", "inspect", str(tmp_path / "store")]
        done = subprocess.run(inspect, capture_output=True, text=True, check=False, timeout=60)
        assert "a broker runs on it" in done.stdout, done.stderr
    done = subprocess.run(inspect, capture_output=True, text=True, check=False, timeout=60)
    assert "stopped cleanly" in done.stdout, done.stderr
