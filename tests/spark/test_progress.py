"""A stream's batches, without Spark: first batch, limits, new and lost queues, idle polling."""

from __future__ import annotations

import json

import pytest

from pyrmq._tables.errors import BrokerAway, DataLossError, OffsetError, OptionError
from pyrmq._tables.offsets import Bounds, Queue, parse_version
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.plan import rows
from tests.spark.fake import Stream

A, B, C = (Queue("t", "b", number) for number in range(3))
ON_OTHER = Queue("t", "other", 0)


def test_the_first_batch_records_its_start_and_later_ones_do_not() -> None:
    stream = Stream({A: Bounds(0, 5)}, startingOffsets="earliest")
    start = stream.progress.initial()
    first = stream.latest(start)
    assert parse_version(first)[:2] == ({A: 5}, {A: 0})
    stream.cluster.queues[A] = Bounds(0, 8)
    stream.clock.now += 1
    second = stream.latest(first)
    assert parse_version(second)[:2] == ({A: 8}, None)
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
    stream.cluster.made_ms[new] = 2_000_000
    stream.clock.now += 31
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
    with pytest.raises(DataLossError, match=r"queue 0: expected offsets 0 to 9, it has 4 to 9"):
        stream.progress.tasks(start, end)
    lenient = Stream({A: Bounds(4, 9)}, startingOffsets="earliest", failOnDataLoss="false")
    assert lenient.read(start, end) == [(A, 4, 9)]


def test_a_limit_does_not_count_what_has_expired() -> None:
    """Else a query that was overtaken would take as many batches as limits have expired."""
    stream = Stream({A: Bounds(0, 5)}, startingOffsets="earliest", failOnDataLoss="false")
    at = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(1000, 1100)
    stream.clock.now += 1
    end = stream.latest(at, limit=10)
    assert stream.read(at, end) == [(A, 1000, 1010)]
    assert stream.read(end, stream.latest(end, limit=10)) == [(A, 1010, 1020)]


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
    with pytest.raises(DataLossError, match="was at 12, now has 0 to 3"):
        stream.latest(later)


def test_a_topic_made_anew_is_read_from_its_start_when_loss_is_no_failure() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", failOnDataLoss="false")
    end = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(0, 3)
    stream.cluster.made_ms[A] = 1_000_000
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 30 + 1
    later = stream.latest(end)
    assert stream.read(end, later) == [(A, 0, 3)]


def test_a_queue_that_lost_its_end_is_not_read_twice() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", failOnDataLoss="false")
    end = stream.latest(stream.progress.initial())
    stream.cluster.queues[A] = Bounds(0, 3)
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 30 + 1
    shorter = stream.latest(end)
    assert stream.read(end, shorter) == []
    stream.cluster.queues[A] = Bounds(0, 5)
    stream.clock.now += 1
    assert stream.read(shorter, stream.latest(shorter)) == [(A, 3, 5)]


def test_offsets_given_anew_are_loss_although_the_queue_is_longer() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    assert parse_version(end).marks == {A: (80_000, 8000)}
    stream.cluster.queues[A] = Bounds(0, 12)
    stream.cluster.made_ms[A] = 1_000_000
    stream.again()
    with pytest.raises(DataLossError, match="stored at 8000; now another one is there"):
        stream.latest(end)
    lenient = Stream(stream.cluster.queues, failOnDataLoss="false")
    lenient.cluster.made_ms[A] = 1_000_000
    assert lenient.read(end, lenient.latest(end)) == [(A, 0, 12)]


def test_a_broker_that_comes_back_is_compared_with_what_was_read() -> None:
    stream = Stream({A: Bounds(0, 9), ON_OTHER: Bounds(0, 9)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    stream.cluster.away = {"other"}
    stream.clock.now += 0.2
    assert stream.latest(end) == end
    stream.cluster.away = set()
    stream.cluster.made_ms[ON_OTHER] = 1_000_000
    stream.clock.now += 0.2
    with pytest.raises(DataLossError, match="broker other, queue 0: was at 9 after"):
        stream.latest(end)


def test_a_broker_that_is_away_keeps_its_position_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for fail in ("true", "false"):
        caplog.clear()
        stream = Stream(
            {A: Bounds(0, 9), ON_OTHER: Bounds(0, 9)},
            startingOffsets="earliest",
            failOnDataLoss=fail,
        )
        at = stream.latest(stream.progress.initial())
        stream.cluster.away = {"other"}
        read = []
        for number in range(10, 70):
            stream.cluster.queues[A] = Bounds(0, number)
            stream.clock.now += 5
            end = stream.latest(at)
            read += stream.read(at, end)
            at = end
        assert read == [(A, number - 1, number) for number in range(10, 70)]
        warnings = [record.message for record in caplog.records]
        assert len(warnings) == 1
        assert warnings[0].startswith("broker other (127.0.0.1:1) has been away for 5 s: no answer")
        stream.cluster.away = set()
        stream.cluster.queues[ON_OTHER] = Bounds(0, 12)
        stream.clock.now += 1
        assert stream.read(at, stream.latest(at)) == [(ON_OTHER, 9, 12)]
        assert "broker other is back" in caplog.records[-1].message


def test_a_broker_that_stays_away_ends_the_query_without_a_loss() -> None:
    stream = Stream({A: Bounds(0, 9), ON_OTHER: Bounds(0, 9)}, awayMs="60000")
    end = stream.latest(stream.progress.initial())
    stream.cluster.away = {"other"}
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 61
    with pytest.raises(
        BrokerAway, match=r"broker other .* has been away for 61 s: .* Nothing is lost"
    ):
        stream.latest(end)


def test_a_broker_may_stay_away_for_ever() -> None:
    stream = Stream({A: Bounds(0, 9), ON_OTHER: Bounds(0, 9)}, awayMs="0")
    end = stream.latest(stream.progress.initial())
    stream.cluster.away = {"other"}
    for _ in range(3):
        stream.clock.now += 1_000_000
        assert stream.latest(end) == end


def test_a_planned_batch_waits_for_its_broker_and_is_no_loss() -> None:
    stream = Stream({A: Bounds(0, 9), ON_OTHER: Bounds(0, 9)}, startingOffsets="earliest")
    start = stream.progress.initial()
    end = stream.latest(start)
    stream.cluster.away = {"other"}
    stream.again()

    def back(seconds: float) -> None:
        stream.clock.sleep(seconds)
        if stream.clock.now > 1300:
            stream.cluster.away = set()

    stream.progress.sleep = back
    assert stream.read(start, end) == [(A, 0, 9), (ON_OTHER, 0, 9)]
    assert stream.clock.now > 1300


def test_a_queue_unseen_at_the_start_of_latest_begins_when_the_query_began() -> None:
    stream = Stream({A: Bounds(0, 5), ON_OTHER: Bounds(0, 500)})
    stream.clock.now = 400.0
    stream.cluster.away = {"other"}
    start = stream.progress.initial()
    end = stream.latest(start)
    stream.cluster.away = set()
    stream.cluster.queues[ON_OTHER] = Bounds(0, 510)
    stream.clock.now += 1
    stream.again()
    later = stream.latest(end)
    # The query began thirty seconds of waiting ago, at 400 s: offset 400 was stored then.
    assert stream.read(end, later) == [(ON_OTHER, 400, 510)]
    assert parse_version(later).since_ms == 400_000


def test_a_replayed_batch_reads_a_new_queue_from_where_it_began() -> None:
    stream = Stream({A: Bounds(0, 5)}, startingOffsets="earliest", failOnDataLoss="false")
    first = stream.latest(stream.progress.initial())
    stream.cluster.queues[B] = Bounds(0, 100)
    stream.clock.now += 1
    second = stream.latest(first)
    assert parse_version(second).begun == {B: 0}
    strict = Stream({A: Bounds(0, 5), B: Bounds(60, 100)}, startingOffsets="earliest")
    with pytest.raises(DataLossError, match="expected offsets 0 to 100, it has 60 to 100"):
        strict.progress.tasks(first, second)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_available_now_notices_a_topic_made_anew(fail: str) -> None:
    stream = Stream({A: Bounds(0, 100)}, startingOffsets="earliest", failOnDataLoss=fail)
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.queues[A] = Bounds(0, 40)
    stream.cluster.made_ms[A] = 1_000_000
    stream.progress.freeze()
    if fail == "true":
        with pytest.raises(DataLossError, match="was at 100, now has 0 to 40"):
            stream.latest(end)
    else:
        assert stream.read(end, stream.latest(end)) == [(A, 0, 40)]
    assert stream.clock.now >= 1030


def test_available_now_waits_for_a_broker_that_reads_its_log() -> None:
    stream = Stream({A: Bounds(0, 100)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.queues[A] = Bounds(0, 40)
    stream.progress.freeze()

    def recovered(seconds: float) -> None:
        stream.clock.sleep(seconds)
        stream.cluster.queues[A] = Bounds(0, 120)

    stream.progress.sleep = recovered
    assert stream.read(end, stream.latest(end)) == [(A, 100, 120)]


def test_available_now_names_the_queues_of_absent_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Stream({A: Bounds(0, 9), ON_OTHER: Bounds(0, 9)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    stream.again()
    stream.cluster.away = {"other"}
    stream.cluster.queues[A] = Bounds(0, 11)
    stream.progress.freeze()
    assert stream.read(end, stream.latest(end)) == [(A, 9, 11)]
    text = "the query ends without queues of absent brokers: topic t, broker other, queue 0"
    assert text in caplog.messages


def test_a_pattern_leaves_out_system_topics_and_lists_topics_rarely() -> None:
    half = Queue("RMQ_SYS_TRANS_HALF_TOPIC", "b", 0)
    queues = {A: Bounds(0, 5), half: Bounds(0, 5)}
    stream = Stream(queues, topicPattern=".*", startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    assert parse_version(end).offsets == {A: 5}
    listed = stream.cluster.listings
    for _ in range(20):
        stream.clock.now += 1
        stream.latest(end)
    assert stream.cluster.listings == listed
    every = Stream(queues, topicPattern=".*", includeSystemTopics="true")
    assert set(parse_version(every.progress.initial()).offsets) == {A, half}


def test_a_read_waits_for_the_brokers_that_it_names() -> None:
    stream = Stream({A: Bounds(0, 5)}, brokers="b, other")
    with pytest.raises(BrokerAway, match="broker other is needed, but in no route"):
        stream.progress.initial()
    assert stream.clock.now >= 1030
    stream.cluster.queues[ON_OTHER] = Bounds(0, 5)
    assert set(parse_version(stream.progress.initial()).offsets) == {A, ON_OTHER}


def test_a_topic_that_its_broker_does_not_know_is_an_error_after_the_grace_time() -> None:
    stream = Stream({A: Bounds(0, 9), ON_OTHER: Bounds(0, 4)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    del stream.cluster.queues[ON_OTHER]
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 30 + 1
    with pytest.raises(DataLossError, match="was at 4, now the topic no longer exists"):
        stream.latest(end)


def test_a_topic_that_is_gone_is_told_once_and_keeps_its_position(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queues = {A: Bounds(0, 9), ON_OTHER: Bounds(0, 4)}
    stream = Stream(queues, startingOffsets="earliest", failOnDataLoss="false")
    at = stream.latest(stream.progress.initial())
    del stream.cluster.queues[ON_OTHER]
    for number in range(10, 30):
        stream.cluster.queues[A] = Bounds(0, number)
        stream.clock.now += 5
        at = stream.latest(at)
    assert len(caplog.messages) == 1
    assert parse_version(at).offsets == {A: 29, ON_OTHER: 4}
    stream.cluster.queues[ON_OTHER] = Bounds(0, 2)
    stream.cluster.made_ms[ON_OTHER] = 1_000_000
    stream.clock.now += 5
    assert stream.read(at, stream.latest(at)) == [(ON_OTHER, 0, 2)]


def test_a_checkpoint_of_other_topics_is_refused() -> None:
    u = Queue("u", "b", 0)
    both = Stream({A: Bounds(0, 9), u: Bounds(0, 4)}, topic="t,u", startingOffsets="earliest")
    start = both.progress.initial()
    end = both.latest(start)
    text = "positions of topics u, and option topic names t"
    with pytest.raises(OffsetError, match=text):
        Stream({A: Bounds(0, 9)}).latest(end)
    with pytest.raises(OffsetError, match=text):
        Stream({A: Bounds(0, 9)}).read(start, end)
    one = Stream({A: Bounds(0, 12)}, failOnDataLoss="false")
    assert one.read(end, one.latest(end)) == [(A, 9, 12)]
    # Another topic may come to those that are there: it is read from its beginning.
    more = Stream({A: Bounds(0, 9), u: Bounds(0, 4), Queue("v", "b", 0): Bounds(0, 2)})
    more.options = Options.parse({"nameServer": "h:1", "topic": "t,u,v"}, batch=False)
    more.again()
    assert more.read(end, more.latest(end)) == [(Queue("v", "b", 0), 0, 2)]


def test_a_queue_that_may_not_be_read_any_more_has_its_own_text() -> None:
    stream = Stream({A: Bounds(0, 9), B: Bounds(0, 4)}, startingOffsets="earliest")
    end = stream.latest(stream.progress.initial())
    del stream.cluster.queues[B]
    stream.clock.now += 1
    assert stream.latest(end) == end
    stream.clock.now += 30 + 1
    with pytest.raises(DataLossError, match=r"queue 1: .* still stored: raise readQueueNums"):
        stream.latest(end)


def test_a_query_begins_at_what_its_group_has_committed() -> None:
    queues = {A: Bounds(5, 20), B: Bounds(5, 20), C: Bounds(5, 20)}
    stream = Stream(queues, startingOffsets="group", group="mine")
    stream.cluster.group = {A: 12, B: 2}
    assert parse_version(stream.progress.initial()).offsets == {A: 12, B: 5, C: 5}
    with pytest.raises(OptionError, match="option group: is missing: startingOffsets needs"):
        Stream(queues, startingOffsets="group")


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
    with pytest.raises(DataLossError, match="queue 0: no longer exists"):
        stream.progress.tasks(start, end)
    assert stream.clock.now >= 1030


def test_a_slave_that_is_behind_its_master_is_no_loss() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", timeoutMs="1000")
    end = stream.latest(stream.progress.initial())
    stream.cluster.slaves = {"b"}
    stream.cluster.queues[A] = Bounds(0, 5)
    for _ in range(3):
        stream.clock.now += 2
        assert stream.latest(end) == end
    stream.cluster.queues[A] = Bounds(0, 12)
    stream.clock.now += 2
    assert stream.read(end, stream.latest(end)) == [(A, 9, 12)]


def test_a_batch_that_a_master_has_waits_for_its_slave() -> None:
    stream = Stream({A: Bounds(0, 9)}, startingOffsets="earliest", timeoutMs="1000", awayMs="60000")
    start = stream.progress.initial()
    end = stream.latest(start)
    stream.cluster.slaves = {"b"}
    stream.cluster.queues[A] = Bounds(0, 5)
    stream.again()
    sleep = stream.clock.sleep

    def caught_up(seconds: float) -> None:
        sleep(seconds)
        if stream.clock.now > 1020:
            stream.cluster.queues[A] = Bounds(0, 9)

    stream.progress.sleep = caught_up
    assert stream.read(start, end) == [(A, 0, 9)]
    stream.cluster.queues[A] = Bounds(0, 5)
    stream.again()
    with pytest.raises(BrokerAway, match=r"only a slave answers, .* waited 60 s .awayMs."):
        stream.read(start, end)
