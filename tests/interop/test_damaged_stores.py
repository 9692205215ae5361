"""A store of the real broker, damaged in the same way for both: what each of them makes of it.

The table in docs/store.md says what is asserted here. Messages are read by raw pulls of all queues.
"""

from __future__ import annotations

import shutil
import tarfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop import artifacts
from tests.interop.cluster import broker, name_server
from tests.interop.jvm import StartError
from tests.interop.sample import TOPICS
from tests.interop.store_sends import GET_MAX_OFFSET, Sender
from tests.interop.test_ranges import FOUND, GET_MIN_OFFSET, PULL_MOVED, end, pull
from tests.reference import golden
from tests.reference import record as log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(180)]

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


def delete_queue(store: Path) -> None:
    """Delete the files of one queue."""
    shutil.rmtree(store / "consumequeue" / "Single" / "0")


def spoil_queue(store: Path) -> None:
    """Let entries in the middle of a queue point to nowhere."""
    file = min((store / "consumequeue" / "Single" / "0").iterdir())
    data = bytearray(file.read_bytes())
    data[20 * 10 : 20 * 14] = b"\x00\x00\x00\x00\x7f" * 16
    file.write_bytes(bytes(data))


def empty_index(store: Path) -> None:
    """Cut an index file to nothing."""
    for file in (store / "index").iterdir():
        file.write_bytes(b"")


def delete_checkpoint(store: Path) -> None:
    """Delete the checkpoint."""
    (store / "checkpoint").unlink()


def cut_topics(store: Path) -> None:
    """Cut the table of topics and its backup in half."""
    for name in ("topics.json", "topics.json.bak"):
        file = store / "config" / name
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def read_all(address: str) -> int:
    """How many messages of the sample's topics can be read."""
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


def outcome(who: str, store: Path, names: str, sent: dict[str, Any]) -> int:
    """What a broker makes of a store: all can be read, a part of it, or it does not start."""
    settings = {"store_dir": store, "properties": sent["settings"]}
    one = broker(who, artifacts.VERSIONS[0], names, **settings)
    try:
        one.start()
    except StartError:
        return REFUSED
    try:
        # The sample's delayed message is due by now: it may be there once more.
        return WHOLE if read_all(one.address) >= len(sent["messages"]) else PART
    except ConnectionRefusedError:
        # A JVM that is about to end passes for a started one.
        return REFUSED
    finally:
        one.kill()


@pytest.mark.parametrize(
    ("end", "damage", "java", "ours"),
    [
        ("kill", flip_body, PART, REFUSED),
        ("clean", delete_queue, PART, WHOLE),
        ("clean", spoil_queue, PART, PART),
        ("kill", spoil_queue, PART, WHOLE),
        ("kill", empty_index, WHOLE, WHOLE),
        ("kill", delete_checkpoint, WHOLE, WHOLE),
        ("clean", cut_topics, REFUSED, REFUSED),
    ],
)
def test_both_brokers_on_the_same_damage(
    tmp_path: Path, end: str, damage: Callable[[Path], None], java: int, ours: int
) -> None:
    artifacts.require_java()
    one = sample(end)
    with tarfile.open(golden.GOLDEN / one["file"]) as tar:
        tar.extractall(tmp_path / "whole", filter="data")
    damage(tmp_path / "whole")
    found = {}
    with name_server("ours", artifacts.VERSIONS[0]) as names:
        for who in ("java", "ours"):
            shutil.copytree(tmp_path / "whole", tmp_path / who)
            found[who] = outcome(who, tmp_path / who, names.address, golden.content(one))
    assert found == {"java": java, "ours": ours}
