"""What to make of results files: `python -m benches.report docs | merge RUN.. | compare A B`.

`docs` writes, from docs/figures.json, docs/figures.svg and what stands in README.md and docs/*.md
between such marks: `<!-- figures: ROW,ROW -->` and `<!-- /figures -->` the table of these rows,
`latencies: ROW,ROW` their percentiles, `runs` the list of runs; with `--check` it only reports
differences. `merge` takes the rows of results files into docs/figures.json; of a row that several
runs measured, the newest one is kept. `compare` says for each row that two files share whether the
ratio of their medians is more than noise: the bootstrap interval of 95 % must lie on one side of 1.
If the files are of different machines, it says so, and no row makes it fail.
"""

from __future__ import annotations

import argparse
import difflib
import random
import re
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches import plots
from benches.open_loop import PERCENTILES
from benches.open_loop import merged as merged_turns
from benches.released import merged, read_release, replaced, write_release
from benches.results import ResultsError, read, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benches.released import Release, Run
    from benches.row import Row

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "docs" / "figures.json"
PICTURE = ROOT / "docs" / "figures.svg"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PART = re.compile(r"(<!-- figures: (?P<rows>[^>]*?) -->\n)(?P<table>.*?)(<!-- /figures -->)", re.S)
LATENCIES = re.compile(
    r"(<!-- latencies: (?P<rows>[^>]*?) -->\n)(?P<table>.*?)(<!-- /latencies -->)", re.DOTALL
)
RUNS = re.compile(r"(<!-- runs -->\n)(?P<table>.*?)(<!-- /runs -->)", re.S)
SAMPLES, SHARE = 2000, 0.95
MACHINE = ("cores", "memory_gib", "processor", "system", "python")
"""Figures of machines that differ in one of these cannot be compared."""
MILLIS_BELOW_S = 0.1
"""Shorter times are shown in milliseconds."""
RUNS_DIFFER = 0.1
"""Share by which two runs of one build may differ beyond what the turns of each show."""


def number(value: float) -> str:
    """Return a figure with three significant digits."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def _side(row: Row, side: str, *, spread: bool = False) -> str:
    """Return a side's median with its unit and, with `spread`, the range of its turns."""
    middle, unit = row.median(side), row.unit
    factor = 1.0
    if unit == "s" and middle < MILLIS_BELOW_S:
        factor, unit = 1e3, "ms"
    elif unit == "ms" and middle >= 1e3:
        factor, unit = 1e-3, "s"
    low, high = (number(factor * pick(row.figures[side])) for pick in (min, max))
    text = f"{number(factor * middle)} {unit}"
    if spread and low != high:
        text += f" ({low} to {high})"
    # A mark, since such a figure is worse than the system that people run.
    return text if row.steady.get(side, True) else f"{text}, not steady"


def _ours(row: Row) -> str:
    return _side(row, "ours", spread=row.ratio() is None)


def _theirs(row: Row) -> str:
    return _side(row, row.rival) if row.rival in row.figures else ""


def _ratio(row: Row) -> str:
    ratio, ratios = row.ratio(), row.ratios()
    if ratio is None:
        return ""
    return f"**{ratio:.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"


def _cpu(spent: Mapping[str, Sequence[float]], rival: str) -> str:
    sides = [side for side in ("ours", rival) if side in spent]
    return " / ".join(number(statistics.median(spent[side])) for side in sides)


Column = tuple[str, "Callable[[Row], str]"]
WHAT: Column = ("what", lambda row: row.what)
OURS: Column = ("pyrmq", _ours)
BESIDE: tuple[Column, ...] = (
    ("pyrmq / the other", lambda row: row.what),
    OURS,
    ("the other", _theirs),
    ("ratio (turns)", _ratio),
)
MEMORY: Column = ("memory", lambda row: row.memory)
TARGET: Column = ("target", lambda row: row.target)
SPENT: tuple[Column, ...] = (
    ("client CPU, s a million", lambda row: _cpu(row.client_us, row.rival)),
    ("server CPU", lambda row: _cpu(row.cpu_us, row.rival)),
)


def _line(row: Row, columns: Sequence[Column]) -> str:
    return f"| {' | '.join(cell(row) for _, cell in columns)} |"


def row_line(row: Row) -> str:
    """Return a row's line: ours, theirs, the ratio with its range over the turns, the target."""
    return _line(row, (*BESIDE, TARGET, *SPENT))


def table(
    names: Sequence[str], rows: Mapping[str, Row], runs: Mapping[str, Run] | None = None
) -> str:
    """Return the table of these rows; columns that all of them leave empty are left out.

    Args:
        names: of the rows.
        rows: by name.
        runs: the run of each row: the last column says when and of which commit it was measured.

    Raises:
        ResultsError: A row was not measured.
    """
    chosen = {name: rows[name] for name in checked(names, rows)}
    is_beside = any(row.ratio() is not None for row in chosen.values())
    columns = [
        *(BESIDE if is_beside else (WHAT, OURS)),
        *([MEMORY] if any(row.memory for row in chosen.values()) else []),
        TARGET,
        *(one for one in SPENT if any(one[1](row) for row in chosen.values())),
    ]
    heads = [head for head, _ in columns]
    lines = [_line(row, columns) for row in chosen.values()]
    if runs is not None:
        heads.append("measured")
        lines = [
            f"{line} {measured(runs[name])} |" for name, line in zip(chosen, lines, strict=True)
        ]
    head = f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n"
    return head + "".join(f"{line}\n" for line in lines)


def named(part: re.Match[str]) -> list[str]:
    """Return the rows that a page names for a table."""
    return [name.strip() for name in part["rows"].split(",")]


def checked(names: Sequence[str], rows: Mapping[str, Row]) -> Sequence[str]:
    """Return the names.

    Raises:
        ResultsError: A row was not measured.
    """
    for name in names:
        if name not in rows:
            near = difflib.get_close_matches(name, rows, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ResultsError(f"no row {name} was measured{hint}")
    return names


def measured(run: Run) -> str:
    """Return when and of which commit a run was, and how busy its machine if it was."""
    busy = f", load {run['machine'].get('load_at_start')}" if run["machine"].get("busy") else ""
    return f"{run['taken'][:10]}, {run['commit'][:8]}{busy}"


def runs_table(runs: Sequence[Run]) -> str:
    """Return a table of runs: what they measured, on what and how."""
    text = (
        "| taken (UTC) | commit | rows | machine | load at the start | turns, scale | libraries |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for run in runs:
        on, options = run["machine"], run["options"]
        described = [
            f"{on.get('cores')} cores",
            f"{on.get('memory_gib')} GiB",
            on.get("processor"),
            on.get("system"),
            f"Python {on.get('python')}",
        ]
        cells = [
            run["taken"][:16].replace("T", " "),
            run["commit"][:8],
            str(len(run["rows"])),
            ", ".join(str(one) for one in described if one),
            str(on.get("load_at_start")),
            f"{options.get('rounds')}, {options.get('scale')}",
            ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
        ]
        text += f"| {' | '.join(cells)} |\n"
    return text


LATENCY_HEAD = (
    "| latency from the schedule, µs | side | p50 | p99 | p99.9 | "
    "of it late sends: p50 | p99 | p99.9 |\n|---|---|---|---|---|---|---|---|\n"
)


def latency_table(rows: Sequence[Row]) -> str:
    """Return the percentiles of all turns of the rows that send on a schedule; empty without one.

    Each row also has how late the sends began: because the generator woke late, or because an
    earlier send took longer than the time between two.
    """
    lines = []
    for row in rows:
        for side, turns in row.latencies.items():
            whole = row.percentiles.get(side) or merged_turns(turns)
            names = [prefix + name for prefix in ("", "late_") for name in PERCENTILES]
            cells = " | ".join(number(whole[name]) for name in names)
            lines.append(f"| {row.what} | {side} | {cells} |\n")
    return LATENCY_HEAD + "".join(lines) if lines else ""


def filled(text: str, release: Release) -> str:
    """Return a page with its tables written anew.

    Raises:
        ResultsError: A table names a row that was not measured.
    """

    def replaced(part: re.Match[str]) -> str:
        return f"{part[1]}{table(named(part), release.rows, release.run_of)}{part[4]}"

    def latencies(part: re.Match[str]) -> str:
        rows = [release.rows[name] for name in checked(named(part), release.rows)]
        return f"{part[1]}{latency_table(rows)}{part[4]}"

    text = LATENCIES.sub(latencies, PART.sub(replaced, text))
    return RUNS.sub(lambda part: f"{part[1]}{runs_table(release.runs)}{part[3]}", text)


def interval(before: Sequence[float], after: Sequence[float], seed: int = 1) -> tuple[float, float]:
    """Return the bootstrap interval of `median(after) / median(before)`."""
    draw = random.Random(seed)

    def median(values: Sequence[float]) -> float:
        return statistics.median(draw.choices(values, k=len(values)))

    ratios = sorted(median(after) / median(before) for _ in range(SAMPLES))
    cut = int(SAMPLES * (1 - SHARE) / 2)
    return ratios[cut], ratios[-cut - 1]


def verdict(row: Row, low: float, high: float) -> str:
    """Return what an interval of the ratio of two runs' figures says."""
    if low <= 1 <= high:
        return "noise"
    return "better" if (low > 1) != row.less_is_more else "worse"


def compared(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[str]:
    """Return a line for each row of both runs: our medians, their ratio, the verdict."""
    lines = []
    for name, new in after.items():
        old = before.get(name)
        if old is None or not {"ours"} <= old.figures.keys() & new.figures.keys():
            continue
        if old.what != new.what:
            lines.append(f"| {new.what} | | | | another load: {old.what} |")
            continue
        low, high = interval(old.figures["ours"], new.figures["ours"])
        ratio = new.median("ours") / old.median("ours")
        mark = ", before not steady" if new.is_steady and not old.is_steady else ""
        lines.append(
            f"| {new.label}{mark} | {number(old.median('ours'))} | {number(new.median('ours'))} "
            f"{new.unit} | {ratio:.2f} ({low:.2f} to {high:.2f}) | {verdict(new, low, high)} |"
        )
    return lines


SPREAD_HEAD = "| row | ratio | turns of the full run | within |\n|---|---|---|---|"


def within_spread(full: Mapping[str, Row], quick: Mapping[str, Row]) -> list[str]:
    """Say of each ratio of a quick run whether it lies in the spread of the full run's turns."""
    lines = []
    for name, new in quick.items():
        ratio, turns = new.ratio(), full[name].ratios() if name in full else []
        if ratio is None or not turns:
            continue
        low, high = min(turns), max(turns)
        within = "below" if ratio < low else "above" if ratio > high else "yes"
        lines.append(f"| {new.label} | {ratio:.2f} | {low:.2f} to {high:.2f} | {within} |")
    return lines


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Say why the figures of two results files cannot be compared; nothing if they can."""
    found = [
        f"{key} {before[part][key]} and {after[part].get(key)}"
        for part, keys in (("machine", MACHINE), ("options", ("scale",)))
        for key in keys
        if key in before[part] and before[part][key] != after[part].get(key)
    ]
    for name, run in (("first", before), ("second", after)):
        if run["machine"].get("busy"):
            load = run["machine"].get("load_at_start")
            found.append(f"the machine of the {name} run was busy (load average {load})")
    return found


def regressions(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[str]:
    """Return a line for each row that became worse by more than noise and than runs differ.

    A machine is faster in one hour than in another, and so is the rival on it. So a row that has
    one counts only if its ratio to it became worse, too.
    """
    least = 1 - RUNS_DIFFER
    found = []
    for name in (name for name in after if name in before):
        old, new = before[name], after[name]
        if not {"ours"} <= old.figures.keys() & new.figures.keys():
            continue
        pairs = [(old.figures["ours"], new.figures["ours"])]
        if new.less_is_more:
            pairs = [pairs[0][::-1]]
        if old.ratios() and new.ratios():
            pairs.append((old.ratios(), new.ratios()))
        highest = [interval(*pair)[1] for pair in pairs]
        if max(highest) < least:
            shares = " and ".join(f"{high:.2f}" for high in highest)
            found.append(f"{new.what}: at most {shares} of the figure (and of the ratio) before")
    return found


def write_docs(*, check: bool) -> int:
    """Write tables and picture; with `check`, only report the files that differ."""
    release = read_release(RELEASE)
    picture = plots.ratios(list(release.rows.values()), [run["machine"] for run in release.runs])
    wanted = [(page, filled(page.read_text(encoding="utf-8"), release)) for page in PAGES]
    stale = []
    for path, new in [*wanted, (PICTURE, picture)]:
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            stale.append(path.name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if check and stale:
        print(f"{', '.join(stale)}: run `python -m benches.report docs`", file=sys.stderr)
    return 1 if check and stale else 0


def merge(paths: Sequence[Path]) -> int:
    """Take the rows of results files into the released figures, and say how many were taken."""
    before = read_release(RELEASE).runs if RELEASE.exists() else []
    new = [read(path) for path in paths]
    after = merged(before, new)
    write_release(RELEASE, after)
    print("\n".join(replaced(before, after, new)))
    return 0


def show_within_spread(before: Run, after: Run) -> None:
    """Print whether the ratios of a quick run lie in the spread of the full one."""
    quick = [run for run in (before, after) if run["options"].get("quick")]
    full = [run for run in (before, after) if not run["options"].get("quick")]
    if not quick or not full:
        return
    lines = within_spread(rows_of(full[0]), rows_of(quick[0]))
    if lines:
        print("\n".join(["", SPREAD_HEAD, *lines]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="benches.report", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    docs = verbs.add_parser("docs", help="write the tables of the documentation")
    docs.add_argument("--check", action="store_true", help="only report what differs")
    more = verbs.add_parser("merge", help="take results files into docs/figures.json")
    more.add_argument("run", type=Path, nargs="+", help="a file of benches/results")
    compare = verbs.add_parser("compare", help="compare our figures of two runs")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    try:
        if given.verb == "docs":
            return write_docs(check=given.check)
        if given.verb == "merge":
            return merge(given.run)
        before, after = read(given.before), read(given.after)
        lines = compared(rows_of(before), rows_of(after))
    except ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    if not lines:
        print("the two files have no row in common", file=sys.stderr)
        return 2
    print("| row | before | after | ratio (95 %) | verdict |\n|---|---|---|---|---|")
    print("\n".join(lines))
    if before["options"].get("quick") or after["options"].get("quick"):
        show_within_spread(before, after)
    apart = differences(before, after)
    if apart:
        print(f"not comparable: {'; '.join(apart)}", file=sys.stderr)
        return 0
    return 1 if any(line.endswith("| worse |") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
