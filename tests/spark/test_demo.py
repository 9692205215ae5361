"""The demo, small: it ends well, and it sees a loss."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from examples.flights.report import Findings

ROOT = Path(__file__).resolve().parents[2]
SPARK_IS_HERE = importlib.util.find_spec("pyspark") and shutil.which("java")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(
    not SPARK_IS_HERE and os.environ.get("CI") != "true",
    reason="left out: pyspark or java is missing, which the Spark tests need",
)
def test_flights_arrive_once_each_although_the_broker_is_killed(tmp_path: Path) -> None:
    paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "examples.flights", "--rows", "6000", "--out", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none lost, none doubled" in done.stdout
    assert "broker killed with -9" in done.stdout
    assert "query started again from its checkpoint" in done.stdout
    assert (tmp_path / "departures.png").stat().st_size > 20_000


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
