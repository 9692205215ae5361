"""A stream's batches, without Spark: first batch, limits, new and lost queues, idle polling."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyrmq.spark.errors import DataLossError, OptionError
from pyrmq.spark.offsets import Bounds, Queue, parse_version, to_json
from pyrmq.spark.options import Options
from pyrmq.spark.plan import rows
from pyrmq.spark.progress import Progress
from tests.spark.fake import FakeClock, FakeCluster

A, B, C = (Queue("t", "b", number) for number in range(3))


class Stream:
    """A stream, its cluster and its clock."""

    def __init__(self, queues: dict[Queue, Bounds], **given: str) -> None:
        options = {"nameServer": "h:1", "topic": "t", **given}
        if "topicPattern" in given:
            del options["topic"]
        self.cluster = FakeCluster(dict(queues))
        self.clock = FakeClock()
        self.options = Options.parse(options, batch=False)
        self.progress = self.again()

    def again(self) -> Progress:
        """A new process on the same cluster, as after a restart."""
        self.progress = Progress(self.options, self.cluster, self.clock, self.clock.sleep)
        return self.progress

    def latest(self, start: dict[str, Any], limit: int = 0) -> dict[str, Any]:
        """Return what Spark would see: the answer converted to text and back."""
        answer: dict[str, Any] = json.loads(json.dumps(self.progress.latest(start, limit=limit)))
        return answer

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Queue, int, int]]:
        """Return what a batch would read."""
        return sorted(
            (part.queue, part.start, part.end)
            for task in self.progress.tasks(start, end)
            for part in task
        )


def test_the_first_batch_records_its_start_and_later_ones_do_not() -> None:
    stream = Stream({A: Bounds(0, 5)}, startingOffsets="earliest")
    start = stream.progress.initial()
    first = stream.latest(start)
    assert parse_version(first) == ({A: 5}, {A: 0})
    stream.cluster.queues[A] = Bounds(0, 8)
    stream.clock.now += 1
    second = stream.latest(first)
    assert parse_version(second) == ({A: 8}, None)
    assert stream.read(first, second) == [(A, 5, 8)]


def test_a_replayed_first_batch_reads_what_it_planned_although_latest_has_moved() -> None:
    stream = Stream({A: Bounds(0, 5)})
    first_start = stream.progress.initial()
    stream.cluster.queues[A] = Bounds(0, 9)
    end = stream.latest(first_start)
    stream.cluster.queues[A] = Bounds(0, 20)
    stream.again()
    second_start = stream.progress.initial()
    assert parse_version(second_start).offsets == {A: 20}
    assert stream.read(second_start, end) == [(A, 5, 9)]
    assert stream.read(end, stream.latest(end)) == [(A, 9, 20)]


def test_an_empty_first_batch_replays_empty() -> None:
    stream = Stream({A: Bounds(0, 5)})
    end = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(0, 7)
    stream.again()
    assert stream.read(stream.progress.initial(), end) == []
    assert stream.read(end, stream.latest(end)) == [(A, 5, 7)]


def test_the_start_is_asked_once_a_process() -> None:
    stream = Stream({A: Bounds(0, 5)})
    first = stream.progress.initial()
    stream.cluster.queues[A] = Bounds(0, 9)
    assert stream.progress.initial() == first


def test_nothing_new_is_the_same_text() -> None:
    stream = Stream({A: Bounds(0, 5), B: Bounds(3, 3)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    assert json.dumps(stream.latest(end)) == json.dumps(end)
    assert stream.progress.tasks(end, end) == []


def test_an_idle_stream_asks_the_broker_at_most_once_in_the_refresh_time() -> None:
    stream = Stream({A: Bounds(0, 5)}, offsetRefreshMs="100")
    end = stream.latest(stream.progress.initial())
    before = stream.cluster.calls
    begun = stream.clock.now
    for _ in range(50):
        stream.latest(end)
        stream.clock.now += 0.010
    assert stream.cluster.calls - before <= 1 + (stream.clock.now - begun) / 0.1
    assert all(seconds <= 0.1 for seconds in stream.clock.slept)


def test_a_fresh_answer_with_news_is_used_without_asking_again() -> None:
    stream = Stream({A: Bounds(0, 5)}, startingOffsets="earliest")
    start = stream.progress.initial()
    first = stream.latest(start, limit=2)
    before = stream.cluster.calls
    second = stream.latest(first, limit=2)
    assert parse_version(second).offsets == {A: 4}
    assert stream.cluster.calls == before
    assert stream.clock.slept == []


def test_a_limit_takes_the_topic_in_steps_and_reports_the_true_end() -> None:
    stream = Stream({A: Bounds(0, 90), B: Bounds(0, 10)}, startingOffsets="earliest")
    at, sizes = stream.progress.initial(), []
    for _ in range(20):
        end = stream.latest(at, limit=20)
        if end == at:
            break
        sizes.append(sum(upper - lower for _, lower, upper in stream.read(at, end)))
        report = stream.progress.report()
        assert report is not None
        assert parse_version(report).offsets == {A: 90, B: 10}
        at = end
    assert sum(sizes) == 100
    assert max(sizes) <= 22


def test_a_new_queue_is_read_from_its_earliest_and_an_empty_one_makes_no_batch() -> None:
    stream = Stream({A: Bounds(0, 5)})
    end = stream.latest(stream.progress.initial())
    stream.cluster.queues[B] = Bounds(4, 4)
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.cluster.queues[B] = Bounds(4, 6)
    stream.clock.now += 1
    later = stream.latest(end)
    assert stream.read(end, later) == [(B, 4, 6)]


def test_a_pattern_finds_topics_that_come_later() -> None:
    stream = Stream({A: Bounds(0, 5)}, topicPattern="t.*")
    end = stream.latest(stream.progress.initial())
    new = Queue("tea", "b", 0)
    stream.cluster.queues[new] = Bounds(0, 2)
    stream.clock.now += 1
    assert stream.read(end, stream.latest(end)) == [(new, 0, 2)]


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(OptionError, match="topicPattern: matches no topic: x"):
        Stream({A: Bounds(0, 5)}, topicPattern="x").progress.initial()


def test_available_now_ends_at_what_was_there_and_takes_it_in_batches() -> None:
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest")
    stream.progress.freeze()
    stream.cluster.queues[A] = Bounds(0, 100)
    stream.cluster.queues[B] = Bounds(0, 100)
    at, read = stream.progress.initial(), []
    # The second queue appeared after the freeze, before the first offsets: it starts at its
    # earliest.
    for _ in range(10):
        end = stream.latest(at, limit=4)
        if end == at:
            break
        read.append(stream.read(at, end))
        at = end
    assert [part for batch in read for part in batch] == [(A, 0, 4), (A, 4, 8), (A, 8, 10)]


def test_minimum_rows_wait_but_not_for_ever() -> None:
    stream = Stream({A: Bounds(0, 5)}, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    start = stream.progress.initial()
    end = stream.latest(start)
    assert parse_version(end).offsets == {A: 5}
    stream.cluster.queues[A] = Bounds(0, 9)
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 31
    later = stream.latest(end)
    assert parse_version(later).offsets == {A: 9}


def test_expired_messages_are_an_error_or_are_left_out() -> None:
    queues = {A: Bounds(0, 9)}
    stream = Stream(queues, startingOffsets="earliest")
    start = stream.progress.initial()
    end = stream.latest(start)
    stream.again()
    stream.cluster.queues[A] = Bounds(4, 9)
    with pytest.raises(
        DataLossError, match=r"queue 0: offsets 0 to 9 were wanted, it holds 4 to 9"
    ):
        stream.progress.tasks(start, end)
    lenient = Stream({A: Bounds(4, 9)}, startingOffsets="earliest", failOnDataLoss="false")
    assert lenient.read(start, end) == [(A, 4, 9)]


def test_a_queue_that_seems_shorter_is_waited_for_before_it_counts_as_lost() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(0, 3)
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.cluster.queues[A] = Bounds(0, 12)
    stream.clock.now += 30
    assert parse_version(stream.latest(end)).offsets == {A: 12}
    stream.cluster.queues[A] = Bounds(0, 3)
    later = stream.latest(stream.latest(end))
    stream.clock.now += 30 + 1
    with pytest.raises(DataLossError, match="stood at 12, now holds 0 to 3"):
        stream.latest(later)


def test_a_topic_made_anew_is_read_from_its_start_when_loss_is_no_failure() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", failOnDataLoss="false")
    end = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(0, 3)
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 30 + 1
    later = stream.latest(end)
    assert stream.read(end, later) == [(A, 0, 3)]


def test_a_vanished_queue_is_an_error_after_the_grace_time() -> None:
    stream = Stream({A: Bounds(0, 9), B: Bounds(0, 4)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    del stream.cluster.queues[B]
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 30 + 1
    with pytest.raises(DataLossError, match="queue 1: stood at 4, now does not exist any more"):
        stream.latest(end)


def test_a_spark_that_does_not_tell_the_start_gets_everything() -> None:
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest")
    start = stream.progress.initial()
    first = stream.progress.latest(None, limit=4)
    assert parse_version(first) == ({A: 10}, {A: 0})
    assert stream.progress.latest(None, limit=4) == first
    assert stream.read(start, first) == [(A, 0, 10)]
    stream.cluster.queues[A] = Bounds(0, 12)
    stream.clock.now += 1
    second = stream.progress.latest(None, limit=1)
    assert stream.read(first, second) == [(A, 10, 12)]


def test_such_a_spark_never_goes_back_after_a_restart() -> None:
    stream = Stream({A: Bounds(0, 10)}, startingOffsets="earliest")
    stream.progress.initial()
    stream.again()
    stream.cluster.queues[A] = Bounds(0, 15)
    # It requests the end of the next batch before it has reported the end of the last one.
    end = stream.progress.latest(None, limit=4)
    assert stream.read(to_json({A: 10}), end) == [(A, 10, 15)]


def test_small_queues_share_a_task() -> None:
    stream = Stream(
        {A: Bounds(0, 10), B: Bounds(0, 20), C: Bounds(0, 30)}, startingOffsets="earliest"
    )
    start = stream.progress.initial()
    tasks = stream.progress.tasks(start, stream.latest(start))
    assert [rows(task) for task in tasks] == [60]


def test_a_batch_that_is_replayed_waits_for_its_broker() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest")
    start = stream.progress.initial()
    end = stream.latest(start)
    stream.again()
    away, stream.cluster.queues = stream.cluster.queues, {}

    def back(seconds: float) -> None:
        stream.clock.sleep(seconds)
        if len(stream.clock.slept) == 5:
            stream.cluster.queues = away

    stream.progress.sleep = back
    assert stream.read(start, end) == [(A, 0, 9)]
    assert len(stream.clock.slept) == 5


def test_a_batch_whose_queue_stays_away_is_data_loss() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest")
    start = stream.progress.initial()
    end = stream.latest(start)
    stream.again()
    stream.cluster.queues = {}
    with pytest.raises(DataLossError, match="queue 0: does not exist any more"):
        stream.progress.tasks(start, end)
    assert stream.clock.now >= 1030
