"""A store of the real broker, damaged in the same way for both brokers: what each recovers.

The table in docs/store.md has the results asserted here. Raw pulls of all queues read the messages.
"""

from __future__ import annotations

import shutil
import tarfile
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop import artifacts
from tests.interop.cluster import broker, name_server
from tests.interop.jvm import StartError
from tests.interop.sample import KEYS, TOPICS
from tests.interop.store_sends import GET_MAX_OFFSET, Sender
from tests.interop.test_ranges import FOUND, GET_MIN_OFFSET, PULL_MOVED, end, pull
from tests.reference import golden
from tests.reference import record as log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.ours import OurBroker
    from tests.interop.rocketmq import JavaBroker

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(180)]

QUERY_MESSAGE = 12
SECONDS = 8.0
"""Time that rebuilding an index may take."""
REFUSED = -1
WHOLE = 1
PART = 0


def sample(end: str) -> dict[str, str]:
    """Return the sample of the newest version after a clean stop or after kill -9."""
    wanted = f"{artifacts.VERSIONS[0]}-{end}.tar.xz"
    return next(row for row in golden.manifest()["stores"] if row["file"].endswith(wanted))


def flip_body(store: Path) -> None:
    """Change one bit in a body in the second segment."""
    file = sorted((store / "commitlog").iterdir())[1]
    data = bytearray(file.read_bytes())
    record, _ = log.decode(bytes(data))
    data[data.index(record.body) + 3] ^= 1
    file.write_bytes(bytes(data))


def drop_newest_segment(store: Path) -> None:
    """Delete the newest file of the log that has records."""
    used = [file for file in sorted((store / "commitlog").iterdir()) if any(file.read_bytes())]
    for file in sorted((store / "commitlog").iterdir()):
        if file >= used[-1]:
            file.unlink()


def drop_middle_segment(store: Path) -> None:
    """Delete the second file of the log."""
    sorted((store / "commitlog").iterdir())[1].unlink()


def shorten_segment(store: Path) -> None:
    """Truncate the second file of the log to half."""
    file = sorted((store / "commitlog").iterdir())[1]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def unknown_record(store: Path) -> None:
    """Make the newest messages records of a kind that a later version may write."""
    places = []
    for file in sorted((store / "commitlog").iterdir()):
        at, data = 0, file.read_bytes()
        while data[at + 4 : at + 8] in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
            record, end = log.decode(data, at)
            if record.topic in TOPICS:
                places.append((file, at))
            at = end
    for file, at in places[-5:]:
        with file.open("r+b") as changed:
            changed.seek(at + 7)
            changed.write(b"\xaf")


def delete_queue(store: Path) -> None:
    """Delete the files of one queue."""
    shutil.rmtree(store / "consumequeue" / "Single" / "0")


def shorten_queue(store: Path) -> None:
    """Leave one and a half entries of a queue's newest file."""
    file = max((store / "consumequeue" / "Single" / "0").iterdir())
    file.write_bytes(file.read_bytes()[:30])


def spoil_queue(store: Path) -> None:
    """Make entries in the middle of a queue point to nowhere."""
    file = min((store / "consumequeue" / "Single" / "0").iterdir())
    data = bytearray(file.read_bytes())
    data[20 * 10 : 20 * 14] = b"\x00\x00\x00\x00\x7f" * 16
    file.write_bytes(bytes(data))


def empty_index(store: Path) -> None:
    """Truncate an index file to zero."""
    for file in (store / "index").iterdir():
        file.write_bytes(b"")


def delete_index(store: Path) -> None:
    """Delete the index."""
    shutil.rmtree(store / "index")


def spoil_index(store: Path) -> None:
    """Make half of the index's positions point to nowhere."""
    for file in (store / "index").iterdir():
        data = bytearray(file.read_bytes())
        data[1000 : len(data) // 2] = b"\x5a" * (len(data) // 2 - 1000)
        file.write_bytes(bytes(data))


def spoil_checkpoint(store: Path) -> None:
    """Overwrite the checkpoint with random bytes."""
    (store / "checkpoint").write_bytes(b"\x5a" * 4096)


def delete_checkpoint(store: Path) -> None:
    """Delete the checkpoint."""
    (store / "checkpoint").unlink()


def cut_topics(store: Path) -> None:
    """Truncate the table of topics and its backup to half."""
    for name in ("topics.json", "topics.json.bak"):
        file = store / "config" / name
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty_offsets(store: Path) -> None:
    """Empty the consumers' offsets and their backup."""
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_bytes(b"")


def found_keys(address: str) -> int:
    """Return how many of the sample's keys find a message, after some time for the index."""
    keys = [(topic, key) for topic, those in KEYS.items() for key in those]
    deadline = time.monotonic() + SECONDS
    with closing(Sender(address)) as sender:
        while True:
            found = sum(is_found(sender, topic, key) for topic, key in keys)
            if found == len(keys) or time.monotonic() > deadline:
                return found
            time.sleep(0.2)


def is_found(sender: Sender, topic: str, key: str) -> bool:
    """Return whether a key finds a message."""
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(2**62),
    }
    return sender.ask(QUERY_MESSAGE, fields).code == FOUND


def read_all(address: str) -> int:
    """Return how many messages of the sample's topics can be read."""
    read = 0
    with closing(Sender(address)) as sender:
        for topic, queues in TOPICS.items():
            for queue in range(queues):
                at = end(sender, GET_MIN_OFFSET, topic, queue)
                most = end(sender, GET_MAX_OFFSET, topic, queue)
                while at < most:
                    answer = pull(sender, topic, queue, at)
                    before, at = at, int((answer.fields or {}).get("nextBeginOffset", most))
                    if answer.code == FOUND:
                        read += len(log.decode_all(answer.body or b""))
                    elif answer.code != PULL_MOVED or at <= before:
                        break
    return read


def outcome(who: str, store: Path, names: str, sent: dict[str, Any], what: str) -> int:
    """Return a broker's result on a store: everything is read or found by key, a part, no start."""
    settings = {"store_dir": store, "properties": sent["settings"]}
    one = broker(who, artifacts.VERSIONS[0], names, **settings)
    if what == "keys":
        return verdict(one, lambda at: found_keys(at) == sum(map(len, KEYS.values())))
    # The sample's delayed message is due by now: it may exist a second time.
    return verdict(one, lambda at: read_all(at) >= len(sent["messages"]))


def verdict(one: OurBroker | JavaBroker, is_whole: Callable[[str], bool]) -> int:
    """Start a broker on a damaged store, check whether it is complete, and kill the broker."""
    try:
        one.start()
    except StartError:
        return REFUSED
    try:
        return WHOLE if is_whole(one.address) else PART
    except ConnectionRefusedError:
        # A JVM that is about to exit may look started.
        return REFUSED
    finally:
        one.kill()


def both(end: str, damage: Callable[[Path], None], tmp_path: Path, what: str) -> dict[str, int]:
    """Return each broker's result on the sample with this damage."""
    artifacts.require_java()
    one = sample(end)
    with tarfile.open(golden.GOLDEN / one["file"]) as tar:
        tar.extractall(tmp_path / "whole", filter="data")
    damage(tmp_path / "whole")
    found = {}
    with name_server("ours", artifacts.VERSIONS[0]) as names:
        for who in ("java", "ours"):
            shutil.copytree(tmp_path / "whole", tmp_path / who)
            sent = golden.content(one)
            found[who] = outcome(who, tmp_path / who, names.address, sent, what)
    return found


@pytest.mark.parametrize(
    ("end", "damage", "java", "ours"),
    [
        ("kill", flip_body, PART, REFUSED),
        ("clean", drop_newest_segment, PART, PART),
        ("clean", drop_middle_segment, PART, REFUSED),
        ("kill", shorten_segment, REFUSED, REFUSED),
        ("kill", unknown_record, PART, REFUSED),
        ("clean", delete_queue, PART, WHOLE),
        ("clean", shorten_queue, REFUSED, WHOLE),
        ("kill", shorten_queue, REFUSED, WHOLE),
        ("clean", spoil_queue, PART, PART),
        ("kill", spoil_queue, PART, WHOLE),
        ("kill", empty_index, WHOLE, WHOLE),
        ("kill", delete_checkpoint, WHOLE, WHOLE),
        ("kill", spoil_checkpoint, WHOLE, WHOLE),
        ("clean", cut_topics, REFUSED, REFUSED),
        ("clean", empty_offsets, WHOLE, REFUSED),
    ],
)
def test_both_brokers_on_the_same_damage(
    tmp_path: Path, end: str, damage: Callable[[Path], None], java: int, ours: int
) -> None:
    assert both(end, damage, tmp_path, "messages") == {"java": java, "ours": ours}


@pytest.mark.parametrize(
    ("end", "damage", "java", "ours"),
    [
        ("clean", delete_index, PART, WHOLE),
        ("kill", empty_index, WHOLE, WHOLE),
        ("clean", spoil_index, PART, PART),
    ],
)
def test_both_brokers_by_key_after_damage_of_the_index(
    tmp_path: Path, end: str, damage: Callable[[Path], None], java: int, ours: int
) -> None:
    assert both(end, damage, tmp_path, "keys") == {"java": java, "ours": ours}
