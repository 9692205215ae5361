"""The quick rows of `make bench` compared with docs/figures.json, the figures of the release.

A part of `make nightly`. Figures of another machine, of a busy one or of another length are no
measure: then they are not compared, and the reason is printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from benches import report
from benches.released import read_release, release_of
from benches.results import BUSY, read, rows_of

if TYPE_CHECKING:
    from pathlib import Path

QUIET_S = 600
RUN_S = 1500

pytestmark = [pytest.mark.bench, pytest.mark.timeout(QUIET_S + RUN_S + 60)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Measure the quick rows, once what ran before has died away; return the results file."""
    out: Path = tmp_path_factory.mktemp("figures")
    deadline = time.monotonic() + QUIET_S
    while os.getloadavg()[0] > BUSY and time.monotonic() < deadline:
        time.sleep(5)
    command = [sys.executable, "-m", "benches.e2e", "--quick", "--out", str(out)]
    subprocess.run(command, cwd=report.ROOT, check=True, timeout=RUN_S)
    (path,) = out.glob("*.json")
    return read(path)


def test_the_quick_rows_are_measured(run: dict[str, Any]) -> None:
    measured, released = rows_of(run), read_release(report.RELEASE).rows
    common = released.keys() & measured.keys()
    print("\n| row | release | now | ratio (95 %) | verdict |\n|---|---|---|---|---|")
    print("\n".join(report.compared(released, measured)))
    print("\n".join(["", report.SPREAD_HEAD, *report.within_spread(released, measured)]))
    assert common, f"none of the released rows was measured: {', '.join(released)}"
    assert all(
        measured[name].ratio() is not None for name in common if released[name].ratio() is not None
    )


def test_no_row_is_worse_than_in_the_release_by_more_than_noise(run: dict[str, Any]) -> None:
    alike, reasons = [], []
    for released in read_release(report.RELEASE).runs:
        apart = report.differences(released, run)
        if apart:
            reasons.append(f"run of {released['taken']}: {'; '.join(apart)}")
        else:
            alike.append(released)
    print("\n".join(reasons))
    rows = release_of(alike).rows
    if not rows.keys() & rows_of(run).keys():
        pytest.skip(f"no row is comparable with the release: {' | '.join(reasons)}")
    assert report.regressions(rows, rows_of(run)) == []
