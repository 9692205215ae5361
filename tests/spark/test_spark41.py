"""A stream on Spark 4.1, which asks for the end of a batch without the position. No Spark here.

What it passes instead is only known when the batch is planned, and its end is in Spark's log then.
"""

from __future__ import annotations

from typing import Any

import pytest

from pyrmq._tables.errors import BrokerAway, DataLossError
from pyrmq._tables.offsets import Bounds, Position, Queue, parse_version, to_json
from tests.spark.fake import Stream

A, B = (Queue("t", "b", number) for number in range(2))
ON_OTHER = Queue("t", "other", 0)


def test_a_spark_that_does_not_tell_the_start_gets_everything() -> None:
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest")
    start = stream.progress.initial()
    first = stream.progress.latest(None, limit=4)
    assert parse_version(first)[:2] == ({A: 10}, {A: 0})
    assert stream.progress.latest(None, limit=4) == first
    assert stream.read(start, first) == [(A, 0, 10)]
    stream.cluster.queues[A] = Bounds(0, 12)
    stream.clock.now += 1
    second = stream.progress.latest(None, limit=1)
    assert stream.read(first, second) == [(A, 10, 11)]
    assert stream.read(second, stream.progress.latest(None, limit=1)) == [(A, 11, 12)]
    done = stream.progress.latest(None, limit=1)
    assert stream.progress.latest(None, limit=1) == done


def test_such_a_spark_waits_for_the_minimum_of_rows_but_not_for_ever() -> None:
    given = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "60s"}
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest", **given)
    end = stream.progress.latest(None, limit=4)
    assert stream.read(stream.progress.initial(), end) == [(A, 0, 10)]
    stream.cluster.queues[A] = Bounds(0, 13)
    stream.clock.now += 1
    assert stream.progress.latest(None, limit=4) == end
    stream.clock.now += 60
    later = stream.progress.latest(None, limit=4)
    assert stream.read(end, later) == [(A, 10, 13)]
    stream.cluster.queues[A] = Bounds(0, 20)
    stream.clock.now += 1
    assert stream.read(later, stream.progress.latest(None, limit=4)) == [(A, 13, 17)]


def test_such_a_spark_never_goes_back_after_a_restart() -> None:
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest")
    stream.progress.initial()
    stream.again()
    stream.cluster.queues[A] = Bounds(0, 15)
    # It requests the end of the next batch before it has reported the end of the last one.
    end = stream.progress.latest(None, limit=4)
    assert stream.read(to_json(Position({A: 10})), end) == [(A, 10, 15)]


@pytest.mark.parametrize(
    ("highest", "made_ms", "read"),
    [
        (3, 1_000_000, [(A, 0, 3)]),
        (9, 1_000_000, [(A, 0, 9)]),
        (12, 1_000_000, [(A, 0, 12)]),
        (3, 0, []),
        (9, 0, []),
        (12, 0, [(A, 9, 12)]),
    ],
)
@pytest.mark.parametrize("fail", ["true", "false"])
def test_such_a_spark_notices_after_a_restart_that_a_topic_was_made_anew(
    highest: int, made_ms: int, read: list[tuple[Queue, int, int]], fail: str
) -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", failOnDataLoss=fail)
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.queues[A] = Bounds(0, highest)
    stream.cluster.made_ms[A] = made_ms
    later = stream.progress.latest(None, limit=0)
    if fail == "true" and (made_ms or highest < 9):
        with pytest.raises(DataLossError, match="queue 0: was at 9"):
            stream.read(end, later)
        return
    assert stream.read(end, later) == read
    # A process that reads this batch again gets the same of it.
    stream.again()
    assert stream.read(end, later) == read
    stream.cluster.queues[A] = Bounds(0, 20)
    stream.clock.now += 1
    assert stream.read(later, stream.progress.latest(None, limit=0)) == [(A, highest, 20)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_such_a_spark_reads_nothing_twice_of_a_broker_that_was_away_at_a_restart(fail: str) -> None:
    """Its end lacks the broker's queues, and is the start of the next batch."""
    queues = {A: Bounds(0, 9), ON_OTHER: Bounds(0, 5)}
    stream = Stream(queues, startingOffsets="earliest", failOnDataLoss=fail)
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.away = {"other"}
    stream.cluster.queues[A] = Bounds(0, 12)
    later = stream.progress.latest(None, limit=0)
    text = "broker other, queue 0: was at 5, but its broker was away when the query started"
    with pytest.raises(BrokerAway, match=text):
        stream.read(end, later)
    # The batch is in Spark's log: a restart runs it again, whether the broker is back or not.
    for away in ({"other"}, set()):
        stream.again()
        stream.cluster.away = away
        with pytest.raises(BrokerAway, match="delete the newest file of the checkpoint's folder"):
            stream.read(end, later)
    # Without it, the query goes on where both brokers stood.
    stream.again()
    assert stream.read(end, stream.progress.latest(None, limit=0)) == [(A, 9, 12)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_such_a_spark_reads_nothing_twice_of_a_broker_that_was_reading_its_log_at_a_restart(
    fail: str,
) -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", failOnDataLoss=fail)
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.queues[A] = Bounds(0, 3)
    later = stream.progress.latest(None, limit=0)

    def recovered(seconds: float) -> None:
        stream.clock.sleep(seconds)
        stream.cluster.queues[A] = Bounds(0, 12)

    stream.progress.sleep = recovered
    with pytest.raises(BrokerAway, match="queue 0: was at 9, but its broker was away"):
        stream.read(end, later)


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("there", [True, False])
def test_such_a_spark_reads_nothing_twice_of_a_slave_that_was_behind_at_a_restart(
    fail: str, *, there: bool
) -> None:
    queues = {A: Bounds(0, 9), ON_OTHER: Bounds(0, 5)}
    given = {"readFrom": "any", "startingOffsets": "earliest", "failOnDataLoss": fail}
    stream = Stream(queues, **given)
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.slaves = {"other"}
    if there:
        stream.cluster.queues[ON_OTHER] = Bounds(0, 3)
    else:
        del stream.cluster.queues[ON_OTHER]
    later = stream.progress.latest(None, limit=0)
    text = "broker other, queue 0: was at 5, but only a slave .* answered.* Start the master"
    with pytest.raises(BrokerAway, match=text):
        stream.read(end, later)
    # Without that end, the query goes on where the master stood.
    stream.cluster.queues[ON_OTHER] = Bounds(0, 7)
    stream.cluster.slaves = set()
    stream.again()
    assert stream.read(end, stream.progress.latest(None, limit=0)) == [(ON_OTHER, 5, 7)]


def started_again_and_idle() -> tuple[Stream, dict[str, Any]]:
    """A query of two brokers whose process has requested one end after a restart."""
    queues = {A: Bounds(0, 9), ON_OTHER: Bounds(0, 5)}
    stream = Stream(queues, startingOffsets="earliest", awayMs="60000")
    start = stream.progress.initial()
    end = stream.progress.latest(None, limit=0)
    assert len(stream.read(start, end)) == 2
    stream.again()
    assert stream.progress.latest(None, limit=0) == end
    return stream, end


@pytest.mark.parametrize("what", ["away", "slave behind", "slave without it"])
def test_an_end_of_such_a_spark_does_not_go_back_while_it_is_idle(what: str) -> None:
    stream, end = started_again_and_idle()
    if what == "away":
        stream.cluster.away = {"other"}
    else:
        stream.cluster.slaves = {"other"}
    if what == "slave behind":
        stream.cluster.queues[ON_OTHER] = Bounds(0, 3)
    elif what == "slave without it":
        del stream.cluster.queues[ON_OTHER]
    stream.clock.now += 1
    begun = stream.clock.now
    assert stream.progress.latest(None, limit=0) == end
    assert stream.clock.now - begun < 1
    stream.cluster.queues[A] = Bounds(0, 12)
    stream.clock.now += 1
    later = stream.progress.latest(None, limit=0)
    assert stream.read(end, later) == [(A, 9, 12)]
    stream.cluster.queues[ON_OTHER] = Bounds(0, 7)
    stream.cluster.away, stream.cluster.slaves = set(), set()
    stream.clock.now += 1
    assert stream.read(later, stream.progress.latest(None, limit=0)) == [(ON_OTHER, 5, 7)]


@pytest.mark.parametrize("returns", [True, False])
def test_an_idle_spark_of_this_kind_waits_for_a_broker_that_reads_its_log_again(
    *, returns: bool
) -> None:
    stream, end = started_again_and_idle()
    stream.cluster.queues[ON_OTHER] = Bounds(0, 3)
    stream.clock.now += 1
    begun = stream.clock.now

    def sleep(seconds: float) -> None:
        stream.clock.sleep(seconds)
        if returns and stream.clock.now - begun > 10:
            stream.cluster.queues[ON_OTHER] = Bounds(0, 5)

    stream.progress.sleep = sleep
    later = stream.progress.latest(None, limit=0)
    if returns:
        assert later == end
    else:
        assert stream.clock.now - begun == pytest.approx(30, abs=1)
        with pytest.raises(DataLossError, match="was at 5, now has 0 to 3"):
            stream.read(end, later)


@pytest.mark.parametrize("returns_s", [10, 40])
def test_such_a_spark_waits_for_a_broker_that_leaves_during_a_restart(returns_s: int) -> None:
    stream, end = started_again_and_idle()
    stream.again()
    stream.progress.initial()
    stream.cluster.away = {"other"}
    stream.cluster.queues[A] = Bounds(0, 12)
    begun = stream.clock.now

    def sleep(seconds: float) -> None:
        stream.clock.sleep(seconds)
        if stream.clock.now - begun > returns_s:
            stream.cluster.away = set()

    stream.progress.sleep = sleep
    later = stream.progress.latest(None, limit=0)
    if returns_s == 10:
        assert stream.read(end, later) == [(A, 9, 12)]
    else:
        with pytest.raises(BrokerAway, match="queue 0: was at 5, but its broker was away when"):
            stream.read(end, later)


def test_such_a_spark_says_what_to_do_although_a_broker_is_away_for_longer_than_away_ms() -> None:
    stream, end = started_again_and_idle()
    stream.again()
    stream.progress.initial()
    stream.cluster.away = {"other"}
    later = stream.progress.latest(None, limit=0)
    stream.clock.now += 40
    with pytest.raises(BrokerAway, match="delete the newest file of the checkpoint's folder"):
        stream.read(end, later)


def test_such_a_spark_goes_on_without_a_queue_of_which_nothing_was_read() -> None:
    stream = Stream({A: Bounds(0, 9), ON_OTHER: Bounds(0, 0)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.away = {"other"}
    stream.cluster.queues |= {A: Bounds(0, 12), ON_OTHER: Bounds(0, 2)}
    later = stream.progress.latest(None, limit=0)
    assert stream.read(end, later) == [(A, 9, 12)]
    stream.cluster.away = set()
    stream.clock.now += 1
    assert stream.read(later, stream.progress.latest(None, limit=0)) == [(ON_OTHER, 0, 2)]


def latest_and_started_again() -> tuple[Stream, dict[str, Any]]:
    """A query from the latest message that began at 1,000,000 ms; its second process, later."""
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="latest")
    start = stream.progress.initial()
    stream.cluster.queues[A] = Bounds(0, 10)
    end = stream.progress.latest(None, limit=0)
    assert stream.read(start, end) == [(A, 9, 10)]
    stream.again()
    stream.clock.now = 1100.0
    stream.cluster.queues[A] = Bounds(0, 12)
    return stream, end


@pytest.mark.parametrize(
    ("made_ms", "read"),
    [
        (0, []),
        (998_000, [(ON_OTHER, 2, 5)]),
        (1_050_000, [(ON_OTHER, 0, 5)]),
    ],
)
@pytest.mark.parametrize("comes", ["before the restart", "after the first batch"])
def test_a_queue_that_comes_later_begins_when_the_query_of_such_a_spark_began(
    made_ms: int, read: list[tuple[Queue, int, int]], comes: str
) -> None:
    stream, end = latest_and_started_again()
    stream.cluster.made_ms[ON_OTHER] = made_ms
    if comes == "before the restart":
        stream.cluster.queues[ON_OTHER] = Bounds(0, 5)
        later = stream.progress.latest(None, limit=0)
        assert stream.read(end, later) == [(A, 10, 12), *read]
        # A process that reads this batch again gets the same of it.
        stream.again()
        stream.cluster.queues[ON_OTHER] = Bounds(0, 6)
        assert stream.read(end, later) == [(A, 10, 12), *read]
    else:
        later = stream.progress.latest(None, limit=0)
        assert stream.read(end, later) == [(A, 10, 12)]
        assert stream.progress.latest(None, limit=0) == later
        stream.cluster.queues[ON_OTHER] = Bounds(0, 5)
        stream.clock.now += 1
        # The queue is not in the batch if it holds nothing of the query's time.
        then = stream.progress.latest(None, limit=0)
        assert stream.read(later, then) == read
        if read:
            assert parse_version(then).since_ms == 1_000_000


def test_such_a_spark_keeps_the_time_of_a_query_that_has_nothing_new_at_a_restart() -> None:
    """Its position is then the start that the new process finds, as that of a new query is."""
    stream, end = latest_and_started_again()
    later = stream.progress.latest(end, limit=0)
    assert stream.read(end, later) == [(A, 10, 12)]
    stream.again()
    stream.clock.now = 1200.0
    idle = stream.progress.latest(None, limit=0)
    assert stream.read(later, idle) == []
    stream.cluster.queues[ON_OTHER] = Bounds(0, 5)
    stream.cluster.made_ms[ON_OTHER] = 1_050_000
    stream.clock.now += 1
    assert stream.read(idle, stream.progress.latest(None, limit=0)) == [(ON_OTHER, 0, 5)]


def test_such_a_spark_names_a_queue_that_may_not_be_read_at_a_restart() -> None:
    stream = Stream({A: Bounds(0, 9), B: Bounds(0, 5)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    stream.again()
    del stream.cluster.queues[B]
    later = stream.progress.latest(None, limit=0)
    with pytest.raises(BrokerAway, match=r"queue 1: was at 5, but it could not .* readQueueNums"):
        stream.read(end, later)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_such_a_spark_notices_a_topic_that_is_gone_after_a_restart(fail: str) -> None:
    other = Queue("u", "b", 0)
    given = {"topicPattern": "t|u", "startingOffsets": "earliest", "failOnDataLoss": fail}
    stream = Stream({A: Bounds(0, 9), other: Bounds(0, 4)}, **given)
    end = stream.latest(stream.progress.initial())
    stream.again()
    del stream.cluster.queues[other]
    stream.cluster.queues[A] = Bounds(0, 12)
    later = stream.progress.latest(None, limit=0)
    if fail == "true":
        with pytest.raises(DataLossError, match=r"topic u, .* was at 4, now the topic no longer"):
            stream.read(end, later)
    else:
        assert stream.read(end, later) == [(A, 9, 12)]
