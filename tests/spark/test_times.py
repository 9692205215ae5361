"""Times to offsets: exact whatever the broker's own answer is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyrmq._tables.brokers.times import first_at
from pyrmq._tables.offsets import Bounds, Queue

A, B = Queue("t", "b", 0), Queue("t", "b", 1)
TIMES = st.lists(st.integers(0, 12), max_size=40).map(sorted)


@given(st.tuples(TIMES, TIMES), st.integers(0, 5), st.integers(-50, 50), st.integers(-1, 13))
def test_the_first_message_at_or_after_a_time_is_found_from_any_hint(
    stored: tuple[list[int], list[int]], lowest: int, hint: int, wanted: int
) -> None:
    queues = {A: stored[0], B: stored[1]}
    bounds = {queue: Bounds(lowest, lowest + len(times)) for queue, times in queues.items()}

    def read(offsets: dict[Queue, int]) -> dict[Queue, int]:
        return {queue: queues[queue][at - lowest] for queue, at in offsets.items()}

    found = first_at(bounds, {A: hint, B: -hint}, wanted, read)
    for queue, times in queues.items():
        older = sum(time < wanted for time in times)
        assert found[queue] == lowest + older


def test_what_expires_during_the_search_counts_as_older() -> None:
    def read(offsets: dict[Queue, int]) -> dict[Queue, int]:
        return {queue: at for queue, at in offsets.items() if at >= 70}

    assert first_at({A: Bounds(0, 100)}, {A: 3}, 1, read) == {A: 70}


def test_a_right_hint_costs_two_rounds() -> None:
    rounds = []

    def read(offsets: dict[Queue, int]) -> dict[Queue, int]:
        rounds.append(offsets)
        return offsets

    assert first_at({A: Bounds(0, 1 << 40)}, {A: 12345}, 12345, read) == {A: 12345}
    assert len(rounds) == 2
