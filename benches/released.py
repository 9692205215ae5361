"""docs/figures.json: the runs whose figures the documentation shows.

A row is in one run, the newest that measured it, and so keeps the date, commit, machine and options
that it was measured with.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benches.open_loop import merged as merged_turns
from benches.results import FORMAT, ResultsError, parsed, problems, rows_of, slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from benches.row import Row

Run = dict[str, Any]
"""The content of a results file."""


@dataclass(frozen=True)
class Release:
    """The released figures.

    Attributes:
        runs: in the order of their dates.
        rows: of all runs, by name.
        run_of: the run of each row, by the row's name.
    """

    runs: Sequence[Run]
    rows: Mapping[str, Row]
    run_of: Mapping[str, Run]


def release_of(runs: Sequence[Run]) -> Release:
    """Return the figures of some runs."""
    found = [(name, row, run) for run in runs for name, row in rows_of(run).items()]
    return Release(
        runs,
        {name: row for name, row, _ in found},
        {name: run for name, _, run in found},
    )


def read_release(path: Path) -> Release:
    """Read the released figures.

    Raises:
        ResultsError: The file is missing, something else, or has a row twice.
    """
    runs = parsed(path, "runs")["runs"]
    for number, run in enumerate(runs):
        if not isinstance(run, dict) or not isinstance(run.get("rows"), list):
            raise ResultsError(f"{path}: run {number} has no rows")
        wrong = problems(run) or _unusable(run)
        if wrong:
            raise ResultsError(f"{path}: run {number}: {'; '.join(wrong[:5])}")
    names = Counter(slug(row["name"]) for run in runs for row in run["rows"])
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ResultsError(f"{path}: more than one run has {', '.join(twice)}")
    return release_of(runs)


def write_release(path: Path, runs: Sequence[Run]) -> None:
    """Replace the released figures; a failure leaves the old file as it was."""
    text = json.dumps({"format": FORMAT, "runs": runs}, indent=1, ensure_ascii=False)
    written = path.with_name(f"{path.name}.new")
    written.write_text(text + "\n", encoding="utf-8")
    written.replace(path)


def merged(runs: Sequence[Run], new: Iterable[Run]) -> list[Run]:
    """Return all runs, each with those of its rows that no later one measured.

    Raises:
        ResultsError: A new run is a quick one, whose figures are not worth releasing, has no rows,
            or has a row that no table can show.
    """
    every = [*runs]
    for run in new:
        if run["options"].get("quick"):
            raise ResultsError(f"the run of {run['taken']} is a quick one: measure without QUICK=1")
        wrong = _unusable(run) if run["rows"] else ["it has no rows"]
        if wrong:
            raise ResultsError(f"the run of {run['taken']}: {'; '.join(wrong[:5])}")
        every.append({key: value for key, value in run.items() if key != "format"})
    every.sort(key=lambda run: str(run["taken"]))
    newest = {slug(row["name"]): at for at, run in enumerate(every) for row in run["rows"]}
    kept = [
        {
            **run,
            "rows": [_kept(row) for row in run["rows"] if newest[slug(row["name"])] == at],
        }
        for at, run in enumerate(every)
    ]
    return [run for run in kept if run["rows"]]


def replaced(before: Sequence[Run], after: Sequence[Run], new: Iterable[Run]) -> list[str]:
    """Say how many rows of new runs were taken, and which were measured less than those before."""
    earlier, now = release_of(before), release_of(after)
    every = {(slug(row["name"]), run["taken"]) for run in new for row in run["rows"]}
    taken = sorted(name for name, at in every if now.run_of[name]["taken"] == at)
    said = [f"{len(taken)} rows taken, {len(every) - len(taken)} older than the released ones"]
    for name in taken:
        was = earlier.run_of[name]["options"] if name in earlier.run_of else {}
        options = now.run_of[name]["options"]
        said += [
            f"{name}: {key} {options[key]}, before {was[key]}"
            for key in ("rounds", "scale")
            if key in was and key in options and options[key] < was[key]
        ]
    return said


def _unusable(run: Run) -> list[str]:
    """Say which rows of a run have no figures of ours, or none that a ratio can be made of."""
    found = []
    for row in run["rows"]:
        figures = row["figures"]
        if "ours" not in figures:
            found.append(f"row {row['name']} has no figures of `ours`")
        elif row["rival"] in figures and 0 in [*figures["ours"], *figures[row["rival"]]]:
            found.append(f"row {row['name']} has a figure of 0, which has no ratio to another")
    return found


def _kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the percentiles of all its turns: pages need no library to show them."""
    found = {**row, "name": slug(row["name"])}
    if row.get("latencies") and not row.get("percentiles"):
        found["percentiles"] = {
            side: {
                name: value
                for name, value in merged_turns(turns).items()
                if not name.endswith("histogram")
            }
            for side, turns in row["latencies"].items()
        }
    return found
