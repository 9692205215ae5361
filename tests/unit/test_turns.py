"""The conclusions of `benches.turns` from its figures."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benches import turns

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def groups(seed: int, *, between: float, within: float, count: int = 10) -> list[list[float]]:
    """Return ratios of two equal builds, three for each pair of processes."""
    chance = random.Random(seed)
    return [
        [
            chance.lognormvariate(pair, within)
            for pair in [chance.gauss(0, between)]
            for _ in range(3)
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize("between", [0.0, 0.05])
def test_the_interval_holds_the_truth_in_95_of_100_runs_whatever_processes_differ_by(
    between: float,
) -> None:
    runs = [turns.interval(groups(seed, between=between, within=0.02)) for seed in range(1000)]
    held = sum(low < 1 < high for low, high in runs)
    assert 930 <= held <= 970
    # If each turn were a group, a difference of two processes would count as one of the builds.
    alone = [
        turns.interval(
            [[ratio] for group in groups(seed, between=between, within=0.02) for ratio in group]
        )
        for seed in range(1000)
    ]
    held = sum(low < 1 < high for low, high in alone)
    assert held < 800 if between else held >= 930


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.90, 0.969, "slower"),
        (0.96, 0.98, "not decided"),
        (0.80, 1.20, "not decided"),
        (0.97, 0.99, "ok"),
        (1.01, 1.04, "ok"),
    ],
)
def test_a_row_is_slower_only_if_its_whole_interval_says_so(
    low: float, high: float, says: str
) -> None:
    assert turns.verdict(low, high) == says


@pytest.mark.parametrize(("less", "low"), [(False, 1.05), (True, 0.93)])
def test_turns_end_when_the_interval_is_narrow_and_a_ratio_above_one_is_better(
    *, less: bool, low: float
) -> None:
    here, other = turns.Side(Path("here")), turns.Side(Path("other"))
    asked: list[turns.Side] = []

    def load(side: turns.Side) -> turns.Figures:
        asked.append(side)
        return {"figure": (1 + len(asked) / 10_000) * (1.07 if side is here else 1.0)}

    row = turns.Row("a row", load, "figure", less)
    line = turns.line(row, turns.measured((here, other), [row], turns=30, group=3))
    assert len(asked) == 2 * turns.FEWEST_GROUPS
    # The side that begins changes.
    assert asked[:4] == [other, here, here, other]
    cells = line.split(" | ")
    assert cells[5] == "5 in 5"
    assert low < float(cells[3]) < low + 0.03
    assert cells[6].startswith("slower" if less else "ok")


def test_servers_live_for_one_group_and_their_first_turn_only_warms_them() -> None:
    sides = turns.Side(Path("here")), turns.Side(Path("other"))
    happened: list[str] = []

    class Fake(turns.Server):
        @contextmanager
        def started(self, side: turns.Side, home: Path) -> Iterator[None]:
            assert not home.exists()
            happened.append("start")
            yield
            happened.append("stop")

    def load(side: turns.Side) -> turns.Figures:
        happened.append("turn")
        return {"figure": random.Random(len(happened)).uniform(1, 2)}

    row = turns.Row("a row", load, "figure", less=False, server=Fake())
    measured = turns.measured(sides, [row], turns=30, group=3)
    assert [len(group) for group in measured] == [3] * 10
    assert happened == [*["start"] * 2, *["turn"] * 8, *["stop"] * 2] * 10


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_checkout_is_measured_beside_itself() -> None:
    command = [sys.executable, "-m", "benches.turns", ".", "--turns", "5", "--group", "1"]
    done = subprocess.run(
        [*command, "--rows", "lone,send,sync1,pull,append,routes,register,idle,ready"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    # The conclusion depends on the machine.
    assert done.returncode in {0, 1}, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + 9
    assert all(" 5 in 5 " in line for line in lines[2:])
