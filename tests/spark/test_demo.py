"""The demo with few rows: it succeeds, and it notices a loss."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests.spark.conftest import LIMITS, QUICK_JVM

if TYPE_CHECKING:
    from examples.flights.report import Findings
    from pyspark.sql import SparkSession

    from pyrmq.message import Message
    from pyrmq.pipeline import Pipeline, Report

ROOT = Path(__file__).resolve().parents[2]
SPARK_IS_HERE = importlib.util.find_spec("pyspark") and shutil.which("java")


NEEDS_SPARK = pytest.mark.skipif(
    not SPARK_IS_HERE and os.environ.get("CI") != "true",
    reason="left out: pyspark or java is missing, which the Spark tests need",
)


def run_demo(rows: int, out: Path) -> subprocess.CompletedProcess[str]:
    """Run the demo in a process of its own."""
    paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "examples.flights", "--rows", str(rows), "--out", str(out)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {QUICK_JVM}",
        },
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@NEEDS_SPARK
@pytest.mark.skipif(
    bool(SPARK_IS_HERE) and not LIMITS,
    reason="its second act ends in one run, and on Spark 4.1 windows close in a later one",
)
def test_flights_arrive_once_each_although_the_broker_is_killed(tmp_path: Path) -> None:
    done = run_demo(6000, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none lost, none doubled" in done.stdout
    assert "broker killed with -9" in done.stdout
    assert "pipeline started again from its checkpoint" in done.stdout
    assert "windows and join are exact" in done.stdout
    for picture in ("departures.png", "weather.png"):
        assert (tmp_path / picture).stat().st_size > 20_000


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(240)
@NEEDS_SPARK
def test_too_few_flights_for_an_hour_end_with_one_line(tmp_path: Path) -> None:
    done = run_demo(500, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "none lost, none doubled" in done.stdout
    last = done.stderr.splitlines()[-1]
    assert last.startswith("no hour came back from Spark: an hour is closed by flights three days")
    assert "run again with --rows 6000 or more" in last
    assert "Traceback" not in done.stderr


class Act:
    """What the second act needs: a pipeline that is idle or has ended, and no hour."""

    hours = ()
    batches = 0

    def __init__(self, *, alive: bool) -> None:
        self.alive = alive

    def nothing(self, *_: object) -> int:
        """Start, stop, open, show or take nothing."""
        return 0

    start = stop = open = close = show = take = stored = nothing


@pytest.mark.parametrize(
    ("alive", "rows", "text"),
    [
        (False, 500, "500 flights are too few days: run again with --rows 6000 or more; the log"),
        (False, 9000, "no hour came back from Spark, although its pipeline has ended; the log is"),
        (True, 9000, "has not moved for 0 s and does not end; 0 hours came back: on a busy"),
    ],
)
def test_a_second_act_without_hours_ends_with_one_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, alive: bool, rows: int, text: str
) -> None:
    from contextlib import ExitStack

    from examples.flights import __main__ as demo
    from examples.flights import stream, weather
    from rich.console import Console

    act = Act(alive=alive)
    monkeypatch.setattr(demo, "DRAIN_S", 0)
    monkeypatch.setattr(weather, "send", lambda *_: set())
    monkeypatch.setattr(weather, "Board", lambda *_: act)
    monkeypatch.setattr(stream, "Run", lambda *_: act)
    monkeypatch.setattr(stream, "pipeline", lambda *_: None)
    with ExitStack() as stack:
        one = demo.Demo(rows, tmp_path, Console(quiet=True), stack)
        one.names, one.spark = "127.0.0.1:9", cast("SparkSession", None)
        with pytest.raises(SystemExit) as ended:
            one.second_act()
    assert text in str(ended.value)
    assert str(ended.value).count("\n") == 0


def test_a_pipeline_that_fails_ends_the_demo_with_the_cause() -> None:
    from examples.flights.stream import Run

    run = Run(cast("SparkSession", None), cast("Pipeline", SimpleNamespace(name="weather")))
    run.report = cast(
        "Report", SimpleNamespace(error="DataLossError: messages are gone\nJVM stacktrace")
    )
    with pytest.raises(SystemExit) as ended:
        _ = run.alive
    assert str(ended.value) == "pipeline weather failed: DataLossError: messages are gone"


def findings() -> Findings:
    from examples.flights.data import Tally
    from examples.flights.report import Findings
    from examples.flights.sender import Counts

    return Findings(
        rows=5,
        counts=Counts(sent=5, acknowledged=4, found_stored=1),
        sent=Tally({1: (3, 300), 2: (2, 200)}),
        stored=5,
        read=5,
        written=Tally({1: (3, 300), 2: (2, 200)}),
        keys=5,
    )


def test_a_report_without_a_fault_has_none() -> None:
    assert findings().faults() == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"keys": 4}, "distinct keys in Parquet: 4 instead of 5"),
        ({"stored": 6}, "stored by the broker: 6 instead of 5"),
        ({"read": 4}, "read by Spark: 4 instead of 5"),
        ({"written": {1: (3, 300), 2: (1, 100)}}, "rows in Parquet: 4 instead of 5"),
        ({"written": {1: (3, 301), 2: (2, 200)}}, "January: sent (3, 300), in Parquet (3, 301)"),
        ({"written": {1: (3, 300)}}, "February: sent (2, 200), in Parquet None"),
    ],
)
def test_a_report_names_what_is_not_equal(change: dict[str, object], fault: str) -> None:
    from examples.flights.data import Tally
    from examples.flights.report import show

    found = findings()
    for name, value in change.items():
        setattr(found, name, Tally(value) if isinstance(value, dict) else value)
    assert fault in found.faults()
    from rich.console import Console

    console = Console(record=True, width=110)
    assert not show(console, found)
    assert "MESSAGES WERE LOST OR DOUBLED" in console.export_text()


def test_what_may_be_stored_is_looked_for_before_it_is_sent_again() -> None:
    from examples.flights.data import Flight
    from examples.flights.sender import Sender

    from pyrmq import Producer, PullConsumer, SendResult
    from pyrmq.errors import BatchSendError, ConnectionLost
    from pyrmq.testing import cluster

    flights = [Flight(f"key-{n}", 1, "UA", f"N{n % 7}", f"{n}".encode()) for n in range(300)]

    class Cut(Producer):
        """Loses the answers of its second call, which stored only the first half."""

        calls = 0

        def send_batch(  # type: ignore[override]
            self, topic: str, messages: list[Message]
        ) -> list[SendResult]:
            self.calls += 1
            if self.calls != 2:
                return super().send_batch(topic, messages)
            super().send_batch(topic, messages[: len(messages) // 2])
            lost = [ConnectionLost("cut off", may_exist=True) for _ in messages]
            raise BatchSendError(topic, lost)

    with cluster() as running:
        sender = Sender(running.name_server, "flights", iter(flights), 100)
        sender.create_topic()
        with Cut(name_server=running.name_server) as producer:
            for first in range(0, 300, 100):
                sender.send(producer, flights[first : first + 100])
        keys: list[str] = []
        with PullConsumer(name_server=running.name_server, group="check") as consumer:
            consumer.assign(dict.fromkeys(consumer.queues("flights"), 0))
            while messages := consumer.poll(timeout=0.5):
                keys += [key for message in messages for key in message.keys]
        assert sender.stored() == 300
    assert sorted(keys) == sorted(flight.key for flight in flights)
    counts = sender.counts
    assert (counts.unknown, counts.found_stored, counts.sent_again) == (100, 50, 50)
    assert counts.acknowledged == 250
