"""Turns count when the figures are steady; a side whose are not is marked."""

from __future__ import annotations

import os
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from benches.e2e import rivals, rows
from benches.e2e.rivals.plans import PLANS

from tests.unit.bench_match import match_of, record_loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Clock:
    """A clock that each run of a load moves."""

    def __init__(self, figures: Iterator[float], seconds: float) -> None:
        """Return these figures, one a run, each of which takes these seconds."""
        self.now = 0.0
        self.runs = 0
        self._figures, self._seconds = figures, seconds

    def run(self) -> float:
        """Take the time of a run; return its figure."""
        self.now += self._seconds
        self.runs += 1
        return next(self._figures)


@pytest.mark.parametrize(
    ("figures", "seconds", "runs", "is_steady"),
    [
        # Two windows of one run.
        (iter([100.0, 104.0]), 2.5, 2, True),
        # Four runs fill a window.
        (iter([100.0] * 8), 0.5, 8, True),
        (iter([100.0, 50.0, 51.0]), 2.0, 3, True),
        ((100.0 * 2**number for number in count()), 2.0, 30, False),
        # Long windows end with the time.
        ((100.0 * 2**number for number in count()), 25.0, 3, False),
        ((100.0 * 2**number for number in count()), 100.0, 3, False),
    ],
)
def test_turns_count_after_two_windows_that_agree(
    figures: Iterator[float],
    seconds: float,
    runs: int,
    is_steady: bool,  # noqa: FBT001 - pytest passes it by name
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock(figures, seconds)
    monkeypatch.setattr(rows, "time", SimpleNamespace(monotonic=lambda: clock.now))
    assert rows.warm(clock.run) is is_steady
    assert clock.runs == runs
    assert ("not steady after" in capsys.readouterr().err) is not is_steady


def test_rows_of_latency_are_warm_by_their_median(monkeypatch: pytest.MonkeyPatch) -> None:
    match = match_of("ours", "apache", rounds=0, scale=1.0)
    figures = {"figure": 900.0, "latency": {"p50": 5.0}}
    monkeypatch.setattr(match, "_run", lambda *_: figures)
    seen: list[float] = []

    def warm(run: Callable[..., float], *arguments: object) -> bool:
        seen.append(run(*arguments))
        return True

    monkeypatch.setattr(rivals, "warm", warm)
    match.play(next(plan for plan in PLANS if plan.name == "latency-java-p99"))
    assert seen == [5.0, 5.0]


def test_a_rival_that_never_becomes_steady_is_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(1))
    match = match_of("ours", "kafka", rounds=2, scale=1.0)
    loads: list[object] = []
    record_loads(loads, monkeypatch)
    monkeypatch.setattr(rivals, "warm", lambda run, load, side: load.startswith("pyrmq"))
    row = match.play(next(plan for plan in PLANS if plan.name == "produce"))
    assert row.steady == {"ours": True, "confluent": False}
    assert loads == ["pyrmq produce", "confluent produce"] * 2
    assert len(synced) == 4
    assert row.server_mib.keys() == {"ours", "confluent"}
    assert min(row.server_mib["confluent"]) > 1
