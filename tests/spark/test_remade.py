"""Streams over topics that were made anew or left out, and batches that are replayed. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from pyrmq._tables.errors import DataLossError, OffsetError
from pyrmq._tables.offsets import Bounds, Queue, parse_version
from pyrmq._tables.options.topic_options import Options
from tests.spark.fake import Stream

A, B = (Queue("t", "b", number) for number in range(2))


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("looked", ["shorter", "gone"])
def test_a_topic_remade_and_refilled_within_the_grace_time_is_noticed(
    fail: str, looked: str
) -> None:
    """Its queue is long enough again before the loss counts, and holds other messages."""
    stream = Stream(
        {A: Bounds(0, 9), B: Bounds(0, 1)}, startingOffsets="earliest", failOnDataLoss=fail
    )
    end = stream.latest(stream.progress.initial())
    if looked == "gone":
        del stream.cluster.queues[A]
    else:
        stream.cluster.queues[A] = Bounds(0, 2)
    stream.cluster.made_ms[A] = 1_000_000
    stream.clock.now += 0.2
    assert stream.latest(end) == end
    stream.cluster.queues[A] = Bounds(0, 14)
    stream.clock.now += 0.2
    if fail == "true":
        with pytest.raises(DataLossError, match="stored at 8000; now another one is there"):
            stream.latest(end)
    else:
        assert stream.read(end, stream.latest(end)) == [(A, 0, 14)]


@pytest.mark.parametrize("length", [3, 9, 12])
def test_a_topic_made_anew_is_read_once_whatever_its_length(length: int) -> None:
    """Its new position has its own mark, also where it is the number of the old one."""
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", failOnDataLoss="false")
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.queues[A] = Bounds(0, length)
    stream.cluster.made_ms[A] = 1_000_000
    stream.latest(end)
    stream.clock.now += 31
    later = stream.latest(end)
    assert stream.read(end, later) == [(A, 0, length)]
    assert parse_version(later).marks == {A: stream.cluster.marks({A: length})[A]}
    stream.again()
    assert stream.latest(later) == later
    stream.cluster.queues[A] = Bounds(0, length + 1)
    stream.clock.now += 1
    assert stream.read(later, stream.latest(later)) == [(A, length, length + 1)]


@pytest.mark.parametrize("length", [9, 12])
def test_a_topic_made_anew_does_not_wait_for_the_minimum_of_rows(length: int) -> None:
    """The messages are compared once; the position must not stay where it was after that."""
    given = {"minOffsetsPerTrigger": "20", "maxTriggerDelay": "60s", "failOnDataLoss": "false"}
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", **given)
    stream.latest(stream.progress.initial())
    stream.clock.now += 61
    at = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.queues[A] = Bounds(0, length)
    stream.cluster.made_ms[A] = 1_000_000
    read = []
    for poll in range(305):
        if poll == 10:
            stream.cluster.queues[A] = Bounds(0, 15)
        later = stream.latest(at)
        read += stream.read(at, later)
        at = later
        stream.clock.now += 0.2
    assert read == [(A, 0, length), (A, length, 15)]


def test_a_queue_that_was_shorter_is_not_read_before_it_has_been_compared() -> None:
    stream = Stream({A: Bounds(0, 9), B: Bounds(0, 1)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(0, 2)
    stream.clock.now += 0.2
    assert stream.latest(end) == end
    stream.cluster.queues |= {A: Bounds(0, 12), B: Bounds(0, 3)}
    stream.cluster.unmarked = {A}
    stream.clock.now += 0.2
    later = stream.latest(end)
    assert stream.read(end, later) == [(B, 1, 3)]
    stream.cluster.unmarked = set()
    stream.clock.now += 0.2
    assert stream.read(later, stream.latest(later)) == [(A, 9, 12)]
    # What can never be compared, as a message that was compacted away, holds nothing up for ever.
    stream.cluster.queues[A] = Bounds(0, 2)
    stream.clock.now += 0.2
    at = stream.latest(later)
    at = stream.latest(stream.latest(at))
    stream.cluster.queues[A] = Bounds(0, 20)
    stream.cluster.unmarked = {A}
    stream.clock.now += 0.2
    assert stream.latest(at) == at
    stream.clock.now += 31
    assert stream.read(at, stream.latest(at))[-1][2] == 20


def planned_and_killed(stream: Stream) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plan the second batch, offsets 10 to 20; the process ends before it is read."""
    start = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(0, 20)
    stream.clock.now += 1
    end = stream.latest(start)
    assert stream.read(start, end) == [(A, 10, 20)]
    stream.again()
    return start, end


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("length", [40, 15])
def test_a_replayed_batch_of_a_topic_made_anew_is_loss(fail: str, length: int) -> None:
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest", failOnDataLoss=fail)
    start, end = planned_and_killed(stream)
    stream.cluster.queues[A] = Bounds(0, length)
    stream.cluster.made_ms[A] = 1_000_000
    if fail == "true":
        with pytest.raises(DataLossError, match="queue 0: "):
            stream.read(start, end)
        return
    # Nothing that was planned is left, and what is new is read once.
    assert stream.read(start, end) == []
    stream.clock.now += 31
    later = stream.latest(end)
    if later == end:
        stream.clock.now += 31
        later = stream.latest(end)
    assert stream.read(end, later) == [(A, 0, length)]


def test_a_replayed_batch_whose_end_was_given_anew_reads_what_is_left() -> None:
    """The broker lost its last messages: offsets 10 to 15 are still those that were planned."""
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest", failOnDataLoss="false")
    start, end = planned_and_killed(stream)
    stream.cluster.queues[A] = Bounds(0, 30)
    stream.cluster.anew[A] = (15, 1_000_000)
    assert stream.read(start, end) == [(A, 10, 15)]
    stream.clock.now += 1
    assert stream.read(end, stream.latest(end)) == [(A, 15, 30)]
    strict = Stream({A: Bounds(0, 30)}, startingOffsets="earliest")
    strict.cluster.anew[A] = (15, 1_000_000)
    with pytest.raises(DataLossError, match="now another one is there"):
        strict.read(start, end)


def test_a_batch_that_is_replayed_as_it_was_is_read_as_it_was() -> None:
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest")
    start, end = planned_and_killed(stream)
    stream.cluster.queues[A] = Bounds(0, 30)
    assert stream.read(start, end) == [(A, 10, 20)]
    # A broker that reads its log again is waited for.
    stream.cluster.queues[A] = Bounds(0, 12)
    stream.again()

    def recovered(seconds: float) -> None:
        stream.clock.sleep(seconds)
        stream.cluster.queues[A] = Bounds(0, 30)

    stream.progress.sleep = recovered
    assert stream.read(start, end) == [(A, 10, 20)]


def test_topics_that_are_left_out_are_not_read() -> None:
    """With failOnDataLoss=false; they keep their positions for a query that names them again."""
    u = Queue("u", "b", 0)
    both = Stream({A: Bounds(0, 9), u: Bounds(0, 4)}, topic="t,u", startingOffsets="earliest")
    start = both.progress.initial()
    end = both.latest(start)
    more = {A: Bounds(0, 12), B: Bounds(0, 2), u: Bounds(0, 6)}
    ways: list[tuple[dict[str, str], list[tuple[Queue, int, int]]]] = [
        ({"topic": "t"}, [(A, 9, 12), (B, 0, 2)]),
        ({"topicPattern": "t"}, [(A, 9, 12), (B, 0, 2)]),
    ]
    for given, read in ways:
        one = Stream(more, failOnDataLoss="false", **given)
        later = one.latest(end)
        assert one.read(end, later) == read
        assert parse_version(later).offsets[u] == 4
        assert parse_version(later).marks[u] == parse_version(end).marks[u]
        one.clock.now += 1
        assert one.latest(later) == later
        assert [part[0] for part in Stream(more, failOnDataLoss="false", **given).read(start, end)]
        with pytest.raises(OffsetError, match="the checkpoint has positions of topics u"):
            Stream(more, **given).latest(end)
    again = Stream(more, topic="t,u")
    assert again.read(later, again.latest(later)) == [(u, 4, 6)]


def test_queues_that_are_left_out_are_refused_or_not_read() -> None:
    stream = Stream({A: Bounds(0, 9), B: Bounds(0, 4)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    more = {A: Bounds(0, 12), B: Bounds(0, 6)}
    options = {"nameServer": "h:1", "queues": '{"t":{"b":[0]}}'}
    for fail in ("true", "false"):
        one = Stream(more)
        one.options = Options.parse({**options, "failOnDataLoss": fail}, batch=False)
        one.again()
        if fail == "true":
            with pytest.raises(OffsetError, match=r"option queues leaves out: .*queue 1"):
                one.latest(end)
        else:
            assert one.read(end, one.latest(end)) == [(A, 9, 12)]
