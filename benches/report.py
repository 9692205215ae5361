"""What to make of results files: `python -m benches.report docs | compare A B`.

`docs` writes docs/figures.svg, and the tables of README.md and docs/performance.md that stand
between `<!-- figures: ROW,ROW -->` and `<!-- /figures -->`, from docs/figures.json; with `--check`
it only reports differences. `compare` says for each row that two files share whether the ratio of
their medians is more than noise: the bootstrap interval of 95 % must lie on one side of 1. If the
files are of different machines, it says so, and no row makes it fail.
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
from benches.open_loop import PERCENTILES, merged
from benches.results import ResultsError, read, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benches.row import Row

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "docs" / "figures.json"
PICTURE = ROOT / "docs" / "figures.svg"
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
PART = re.compile(r"(<!-- figures: (?P<rows>[^>]*?) -->\n)(?P<table>.*?)(<!-- /figures -->)", re.S)
SAMPLES, SHARE = 2000, 0.95
MACHINE = ("cores", "memory_gib", "processor", "system", "python")
"""Figures of machines that differ in one of these cannot be compared."""
RUNS_DIFFER = 0.1
"""Share by which two runs of one build may differ beyond what the turns of each show."""


def number(value: float) -> str:
    """Return a figure with three significant digits."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def row_line(row: Row) -> str:
    """Return a row's line: ours, theirs, the ratio with its range over the turns, the target."""
    ours, theirs = (f"{number(row.median(side))} {row.unit}" for side in ("ours", row.rival))
    ratios, ratio = row.ratios(), row.ratio()
    assert ratio is not None
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    cpu = [
        " / ".join(number(statistics.median(spent[side])) for side in ("ours", row.rival))
        if {"ours", row.rival} <= spent.keys()
        else ""
        for spent in (row.client_us, row.cpu_us)
    ]
    return (
        f"| {row.what} | {ours} | {theirs} | **{ratio:.2f}** ({spread}) | {row.target} | "
        f"{cpu[0]} | {cpu[1]} |"
    )


HEAD = (
    "| pyrmq / the other | pyrmq | the other | ratio (turns) | target | "
    "client CPU, s a million | server CPU |\n|---|---|---|---|---|---|---|\n"
)


def table(names: Sequence[str], rows: Mapping[str, Row]) -> str:
    """Return the table of these rows.

    Raises:
        ResultsError: A row was not measured.
    """
    lines = []
    for name in names:
        if name not in rows:
            near = difflib.get_close_matches(name, rows, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ResultsError(f"no row {name} was measured{hint}")
        lines.append(row_line(rows[name]) + "\n")
    return HEAD + "".join(lines)


LATENCY_HEAD = (
    "| latency from the schedule, µs | side | p50 | p99 | p99.9 | "
    "of it late sends: p50 | p99 | p99.9 |\n|---|---|---|---|---|---|---|---|\n"
)


def latency_table(rows: Sequence[Row]) -> str:
    """Return the percentiles of all turns of the rows that send on a schedule; empty without one.

    How late the sends began stands beside each: because the generator woke late, or because an
    earlier send took longer than the time between two.
    """
    lines = []
    for row in rows:
        for side, turns in row.latencies.items():
            whole = merged(turns)
            names = [prefix + name for prefix in ("", "late_") for name in PERCENTILES]
            cells = " | ".join(number(whole[name]) for name in names)
            lines.append(f"| {row.what} | {side} | {cells} |\n")
    return LATENCY_HEAD + "".join(lines) if lines else ""


def filled(text: str, rows: Mapping[str, Row]) -> str:
    """Return a page with its tables written anew."""

    def replaced(part: re.Match[str]) -> str:
        names = [name.strip() for name in part["rows"].split(",")]
        return f"{part[1]}{table(names, rows)}{part[4]}"

    return PART.sub(replaced, text)


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
        low, high = interval(old.figures["ours"], new.figures["ours"])
        ratio = new.median("ours") / old.median("ours")
        lines.append(
            f"| {new.what} | {number(old.median('ours'))} | {number(new.median('ours'))} "
            f"{new.unit} | {ratio:.2f} ({low:.2f} to {high:.2f}) | {verdict(new, low, high)} |"
        )
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
    raw = read(RELEASE)
    rows = rows_of(raw)
    picture = plots.ratios(list(rows.values()), raw["machine"], raw["commit"])
    wanted = [(page, filled(page.read_text(encoding="utf-8"), rows)) for page in PAGES]
    stale = []
    for path, new in [*wanted, (PICTURE, picture)]:
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            stale.append(path.name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if check and stale:
        print(f"{', '.join(stale)}: run `python -m benches.report docs`", file=sys.stderr)
    return 1 if check and stale else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="benches.report", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    docs = verbs.add_parser("docs", help="write the tables of the documentation")
    docs.add_argument("--check", action="store_true", help="only report what differs")
    compare = verbs.add_parser("compare", help="compare our figures of two runs")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    try:
        if given.verb == "docs":
            return write_docs(check=given.check)
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
    apart = differences(before, after)
    if apart:
        print(f"not comparable: {'; '.join(apart)}", file=sys.stderr)
        return 0
    return 1 if any(line.endswith("| worse |") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
