"""Limits in proportion, ranges, splitting and packing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq._tables.errors import OffsetError
from pyrmq._tables.offsets import Bounds, Queue
from pyrmq._tables.planning.plan import (
    PACK_ROWS,
    Range,
    limit_rows,
    pack,
    ranges_between,
    rows,
    split,
    take,
)

LARGEST = 2**63 - 1
LENGTHS = st.lists(st.integers(1, 200_000), min_size=1, max_size=12)


def queue(number: int) -> Queue:
    return Queue("t", "b", number)


def ranges(lengths: list[int]) -> list[Range]:
    return [Range(queue(number), 5, 5 + length) for number, length in enumerate(lengths)]


def test_a_limit_is_shared_in_proportion() -> None:
    start = {queue(0): 0, queue(1): 100}
    end = {queue(0): 900, queue(1): 200}
    assert limit_rows(start, end, 10) == {queue(0): 9, queue(1): 101}


def test_a_small_queue_beside_a_huge_one_is_not_starved() -> None:
    start = {queue(0): 0, queue(1): 0, queue(2): 7}
    end = {queue(0): 1_000_000, queue(1): 3, queue(2): 7}
    assert limit_rows(start, end, 100) == {queue(0): 99, queue(1): 1, queue(2): 7}


def test_no_limit_and_a_limit_above_all_take_everything() -> None:
    start, end = {queue(0): 0}, {queue(0): 5}
    assert limit_rows(start, end, 0) == end
    assert limit_rows(start, end, 5) == end
    assert limit_rows(start, end, LARGEST) == end


def test_limits_do_not_overflow_at_the_largest_offsets() -> None:
    start = {queue(0): LARGEST - 5, queue(1): 0}
    end = {queue(0): LARGEST, queue(1): LARGEST}
    cut = limit_rows(start, end, LARGEST)
    assert all(start[each] < cut[each] <= end[each] for each in cut)


@given(LENGTHS, st.integers(1, 1_000_000))
def test_a_limit_is_kept_but_for_one_row_a_queue_and_ends_in_time(
    lengths: list[int], limit: int
) -> None:
    start = {queue(number): 0 for number in range(len(lengths))}
    end = {queue(number): length for number, length in enumerate(lengths)}
    cut = limit_rows(start, end, limit)
    taken = sum(cut.values())
    assert 0 < taken <= limit + len(lengths)
    assert all(0 < cut[each] <= end[each] for each in cut)


def test_ranges_leave_out_what_is_empty_and_begin_new_queues_at_their_earliest() -> None:
    start = {queue(0): 4, queue(1): 2}
    end = {queue(0): 4, queue(1): 5, queue(2): 9}
    assert ranges_between(start, end, {queue(2): Bounds(6, 9)}) == [
        Range(queue(1), 2, 5),
        Range(queue(2), 6, 9),
    ]


def test_a_start_behind_its_end_is_an_error() -> None:
    with pytest.raises(OffsetError, match="queue 0: the start is after the end: 6 > 5"):
        ranges_between({queue(0): 6}, {queue(0): 5}, {})


@given(LENGTHS, st.integers(0, 40), st.just(0) | st.integers(500, 50_000))
def test_splitting_and_packing_keep_every_offset_once(
    lengths: list[int], min_partitions: int, max_records: int
) -> None:
    whole = ranges(lengths)
    pieces = split(whole, min_partitions=min_partitions, max_records=max_records)
    tasks = pack(pieces, min_partitions=min_partitions, max_records=max_records)
    read: dict[Queue, list[tuple[int, int]]] = {}
    for task in tasks:
        assert task
        assert not max_records or rows(task) <= max_records
        for part in task:
            read.setdefault(part.queue, []).append((part.start, part.end))
    for part in whole:
        spans = sorted(read[part.queue])
        assert spans[0][0] == part.start
        assert spans[-1][1] == part.end
        assert all(left[1] == right[0] for left, right in itertools.pairwise(spans))
    if min_partitions and rows(whole) >= min_partitions:
        assert len(tasks) >= min(min_partitions, len(pieces))


def test_large_queues_are_tasks_of_their_own_and_small_ones_share() -> None:
    tasks = pack(ranges([PACK_ROWS, 10, 20, 30, PACK_ROWS * 3]))
    assert sorted(len(task) for task in tasks) == [1, 1, 3]


def test_tasks_are_even() -> None:
    tasks = pack(ranges([PACK_ROWS // 2] * 8))
    assert [rows(task) for task in tasks] == [PACK_ROWS] * 4


def test_minimum_partitions_cut_large_queues_into_more() -> None:
    pieces = split(ranges([90, 10]), min_partitions=10)
    assert [part.rows for part in pieces] == [10] * 10


def test_take_keeps_the_first_rows() -> None:
    assert rows(take(ranges([10, 10, 10]), 15)) == 15
    assert take(ranges([10]), 100) == ranges([10])
