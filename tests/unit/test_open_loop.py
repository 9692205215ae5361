"""Loads on a schedule: when they send, and what their histograms hold."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from benches import open_loop, report
from benches.open_loop import OpenLoop, at_rate
from benches.row import Row

needs_histograms = pytest.mark.skipif(
    not open_loop.is_available(), reason="hdrhistogram is not installed: it is of the extra `bench`"
)


def test_a_slow_send_moves_no_later_one_and_counts_as_late() -> None:
    due: list[float] = []

    def send(at: float) -> None:
        due.append(at)
        if len(due) == 1:
            time.sleep(0.05)

    late = at_rate(send, 10, 100)
    steps = [after - before for before, after in pairwise(due)]
    assert steps == pytest.approx([0.01] * 9)
    # The first send kept the thread for five intervals: the next ones begin late, each less so.
    assert late[1] >= 0.04
    assert late[2] >= 0.03
    assert late[3] >= 0.02


def test_no_send_begins_before_its_time() -> None:
    began: list[float] = []
    late = at_rate(lambda at: began.append(time.perf_counter() - at), 20, 500)
    assert min(late) >= 0
    assert all(after >= before for before, after in zip(late, began, strict=True))


@needs_histograms
def test_a_summary_has_percentiles_and_the_generator_s_own_lateness() -> None:
    took = [0.0003] * 990 + [0.002] * 9 + [0.05]
    turn = OpenLoop(took, [0.0001] * 1000).summary()
    assert turn["p50"] == pytest.approx(300, rel=0.002)
    assert turn["p99"] == pytest.approx(300, rel=0.002)
    assert turn["p999"] == pytest.approx(2000, rel=0.002)
    assert turn["late_p999"] == pytest.approx(100, rel=0.002)


@needs_histograms
def test_turns_are_merged_before_a_percentile_is_taken() -> None:
    fast, slow = (OpenLoop([took] * 100, [0.00001] * 100).summary() for took in (0.0001, 0.01))
    # The average of the two medians would be 5050 µs, which no message took.
    assert open_loop.merged([fast, slow, fast])["p50"] == pytest.approx(100, rel=0.002)
    row = Row(what="send to receive", unit="µs", target="", latencies={"ours": [fast, slow, fast]})
    line = report.latency_table([row]).splitlines()[-1]
    assert line == "| send to receive | ours | 100 | 10,000 | 10,000 | 10 | 10 | 10 |"


def test_rows_without_a_schedule_have_no_table_of_latencies() -> None:
    assert report.latency_table([Row(what="produce", unit="msg/s", target="")]) == ""
