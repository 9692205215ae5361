"""A micro-batch cut by bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq._tables.offsets import Bounds, Queue, parse_version
from pyrmq._tables.planning.byte_limit import limit_bytes
from tests.spark.fake import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

A, B = (Queue("t", "b", number) for number in range(2))


def test_a_batch_ends_at_about_its_bytes_and_every_queue_moves_on() -> None:
    stream = Stream(
        {A: Bounds(0, 100_000), B: Bounds(0, 10)},
        startingOffsets="earliest",
        maxBytesPerTrigger="50000",
    )
    start = stream.progress.initial()
    end = parse_version(stream.latest(start)).offsets
    assert 400 <= end[A] <= 500
    assert end[B] >= 1


def test_large_messages_at_the_front_are_noticed_although_most_are_small() -> None:
    def sizes(probes: Sequence[tuple[Queue, int]]) -> dict[tuple[Queue, int], int]:
        return {(queue, at): 1_000_000 if at < 1000 else 10 for queue, at in probes}

    end = limit_bytes({A: 0}, {A: 1_000_000}, 10_000_000, sizes)
    assert end[A] <= 20


def test_without_samples_and_without_a_limit_a_batch_stays_as_it_is() -> None:
    assert limit_bytes({A: 0}, {A: 9}, 10, lambda probes: {}) == {A: 9}
    assert limit_bytes({A: 0}, {A: 9}, 0, lambda probes: {(A, 0): 100}) == {A: 9}


def test_a_batch_of_one_large_message_is_read() -> None:
    end = limit_bytes({A: 4}, {A: 6}, 10, lambda probes: dict.fromkeys(probes, 4 << 20))
    assert end == {A: 5}


def test_what_all_at_once_asks_for_is_not_cut() -> None:
    stream = Stream({A: Bounds(0, 1000)}, startingOffsets="earliest", maxBytesPerTrigger="100")
    start = stream.progress.initial()
    end = stream.progress.latest(start, limit=0, wait_for_more=False)
    assert parse_version(end).offsets == {A: 1000}
