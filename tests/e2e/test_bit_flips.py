"""One flipped bit in each kind of file of a store: the broker serves everything or reports it.

docs/store.md has the rules: the log is the truth, everything else is built from it.
"""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Producer, PullConsumer
from pyrmq.errors import RmqError, ServerError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 32 * 1024
COUNT = 300
TOPIC = "flips"
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 20 * 50,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
FLIPS = 2
OUR_PART, OUR_PART_BYTES = 64, 44
"""Offset and length of our part of the checkpoint file."""
DERIVED = (
    "consumequeue/*/*/*",
    "index/*",
    "checkpoint",
    "abort",
    "lock",
    "queueEnds",
    "config/consumerOffset.json",
    "config/subscriptionGroup.json",
)
"""Files without messages."""


def body(number: int) -> bytes:
    return f"message {number} ".encode() * (1 + number % 5)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cleanly stopped store with several files of each kind."""
    home = tmp_path_factory.mktemp("flips")
    with (
        cluster(store=home, **OPTIONS) as running,
        Producer(name_server=running.name_server, group="flips") as producer,
        PullConsumer(name_server=running.name_server, group="flips", start="first") as consumer,
    ):
        for number in range(COUNT):
            producer.send(TOPIC, body(number), keys=f"k{number}")
        consumer.subscribe(TOPIC)
        seen = 0
        while seen < COUNT:
            seen += len(consumer.poll(timeout=5.0))
        consumer.poll(timeout=0.0)
        consumer.commit()
    return home


def read(home: Path, timeout: float = 10.0) -> list[bytes] | None:
    """Return everything that a broker on the store serves, sorted.

    None if the broker refuses it, or if nothing comes for as long as the timeout lasts.
    """
    found: list[bytes] = []
    with (
        cluster(store=home, **OPTIONS) as running,
        PullConsumer(name_server=running.name_server, group="again", start="first") as consumer,
    ):
        queues = consumer.queues(TOPIC)
        consumer.assign(dict.fromkeys(queues, 0))
        try:
            ends = {queue: consumer.bounds(queue)[1] for queue in queues}
            while any(consumer.position(queue) < end for queue, end in ends.items()):
                polled = consumer.poll(timeout=timeout)
                if not polled:
                    break
                found += [bytes(message.body) for message in polled]
            else:
                return sorted(found)
        except RmqError:
            pass
        assert set(found) <= {body(number) for number in range(COUNT)}
        return None


def flip(file: Path, dice: random.Random) -> str:
    """Flip one bit of a byte that is not zero, or of any byte if all are zero."""
    data = bytearray(file.read_bytes() or b"\0")
    used = [at for at, byte in enumerate(data) if byte] or list(range(len(data)))
    at, bit = dice.choice(used), dice.randrange(8)
    data[at] ^= 1 << bit
    file.write_bytes(bytes(data))
    return f"{file.name}: bit {bit} of byte {at}"


@pytest.mark.faults
@pytest.mark.parametrize("kind", DERIVED)
def test_a_flipped_bit_outside_of_the_log_loses_no_message(
    tmp_path: Path, filled: Path, kind: str
) -> None:
    whole = sorted(body(number) for number in range(COUNT))
    for number in range(FLIPS):
        dice = random.Random(f"{kind} {number}")
        home = tmp_path / str(number)
        shutil.copytree(filled, home)
        if kind == "abort":
            (home / "store" / "abort").write_text("12345")
        where = flip(dice.choice(sorted((home / "store").glob(kind))), dice)
        try:
            # A damaged queue gives nothing: that is not waited for as long.
            first = read(home, 1.5 if kind.startswith("consumequeue") else 10.0)
        except ServerError as error:
            # If neither a table's file nor its backup is readable, a person must repair it.
            if not (kind.startswith("config/") and kind in str(error)):
                raise
            continue
        # A damaged queue is noticed when it is read; the next start builds it from the log.
        assert first == whole or kind.startswith("consumequeue"), where
        assert read(home) == whole, where


@pytest.mark.faults
def test_a_flipped_bit_in_a_body_stops_the_start_and_changes_nothing(
    tmp_path: Path, filled: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(filled, home)
    segments = sorted((home / "store" / "commitlog").iterdir())
    assert len(segments) > 2
    data = bytearray(segments[0].read_bytes())
    data[data.index(body(7)) + 3] ^= 4
    segments[0].write_bytes(bytes(data))
    # A start does not read again what the checkpoint calls durable; `pyrmq log verify` reads
    # everything. If only Apache's part of the checkpoint is valid, the start reads everything too.
    (home / "store" / "abort").write_text("12345")
    with (home / "store" / "checkpoint").open("r+b") as checkpoint:
        checkpoint.seek(OUR_PART)
        checkpoint.write(bytes(OUR_PART_BYTES))
    before = {path: path.read_bytes() for path in segments}
    with (
        pytest.raises(ServerError, match=rf"{segments[0].name}") as raised,
        cluster(store=home, **OPTIONS),
    ):
        pass
    assert "repair" in str(raised.value)
    assert {path: path.read_bytes() for path in segments} == before


@pytest.mark.faults
def test_a_topics_file_that_is_broken_is_replaced_and_its_messages_stay(
    tmp_path: Path, filled: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(filled, home)
    file = home / "store" / "config" / "topics.json"
    file.with_name("topics.json.bak").write_bytes(file.read_bytes())
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(bytes(data))
    assert read(home) == sorted(body(number) for number in range(COUNT))
