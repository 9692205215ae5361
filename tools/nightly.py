"""Run what the gate omits, part by part, and print one table: `nightly.py [PART ...]`.

Each part is a make target with its own log in `nightly/`. The exit status is 1 if a part failed,
found no test, or exceeded its time limit.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "nightly"
LIMIT_S = 60 * 60
"""A part that takes longer is killed: split it."""

SUMMARY = re.compile(r"(=+ )?\d+ [a-z]+(, \d+ [a-z]+)* in [\d.]+s.*")
"""The last line of pytest, with -q too."""

PARTS = {
    "interop-55": "servers and clients of RocketMQ 5.5.0, and stores of all versions",
    "interop-49": "servers and clients of RocketMQ 4.9.7",
    "interop-46": "servers and clients of RocketMQ 4.6.1",
    "sparkreal": "the Spark source on brokers of the same three versions",
    "spark-versions": "the Spark tests on the oldest and the newest PySpark",
    "lake": "pipelines into Delta and Iceberg tables",
    "spark-torture-topic": "20 rounds of kills of all parts of a Spark pipeline, with a new seed",
    "spark-torture-atleast": "the same kills of a pipeline that delivers at least once",
    "spark-torture-parquet": "the same kills of a pipeline into Parquet files",
    "spark-long": "Spark tests that are too long for the gate",
    "sequences": "10,000 request sequences that our name server and the real one answer alike",
    "faults": "10,000 crash points of a simulated disk in five parts, each with a new seed",
    "chaos": "a million messages while servers are killed, stopped and cut off",
    "attacks": "ten minutes of hostile peers, 10,000 of them half open, on a secured server",
    "snapshot": "a snapshot after half an hour of load, opened by another broker",
    "leaks": "a million sends, ten thousand producers opened and closed",
    "long": "Python and Rust tests that are too long for the gate",
    "loom": "every interleaving of the group commit's and of the queue writers' threads",
    "asan": "the store's tests over real files under the address sanitizer",
    "figures": "the quick rows of `make bench` beside the figures of the release",
}


@dataclass(frozen=True)
class Outcome:
    """How a part ended.

    Attributes:
        part: make target.
        verdict: `ok`, or what went wrong.
        seconds: how long it took.
        counts: tests by outcome, for instance `{"passed": 12, "skipped": 1}`.
    """

    part: str
    verdict: str
    seconds: float
    counts: dict[str, int]


def counted(text: str) -> dict[str, int]:
    """Add up the summary lines of pytest and of Rust's test runner."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("test result:") or SUMMARY.fullmatch(line):
            for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)\b", line):
                word = "failed" if word.startswith("error") else word
                counts[word] = counts.get(word, 0) + int(number)
    return counts


def run(part: str) -> Outcome:
    """Run one part and write its output to a log file."""
    log = LOGS / f"{part}.log"
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            ["make", part],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(LIMIT_S)
        except BaseException as error:
            # Kill the whole group, so that no test's server survives.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            status = None
    counts = counted(log.read_text(encoding="utf-8", errors="replace"))
    if status is None:
        verdict = f"not done after {LIMIT_S // 60} minutes"
    elif status != 0 or counts.get("failed"):
        verdict = f"FAILED (status {status})"
    elif not counts.get("passed"):
        verdict = "FAILED (ran no test)"
    else:
        verdict = "ok"
    return Outcome(part, verdict, time.monotonic() - began, counts)


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    lines = [
        "| part | verdict | passed | failed | skipped | minutes | what |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        counts = [str(one.counts.get(word, 0)) for word in ("passed", "failed", "skipped")]
        cells = [one.part, one.verdict, *counts, f"{one.seconds / 60:.1f}", PARTS[one.part]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(parts: list[str]) -> int:
    """Run the named parts, or all of them."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"unknown parts: {', '.join(unknown)}; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    LOGS.mkdir(exist_ok=True)
    outcomes: list[Outcome] = []
    for part in parts or PARTS:
        print(f"{part}: {PARTS[part]} (log: nightly/{part}.log)", flush=True)
        outcomes.append(run(part))
        print(f"{part}: {outcomes[-1].verdict} after {outcomes[-1].seconds:.0f} s", flush=True)
    print(table(outcomes))
    return 0 if all(one.verdict == "ok" for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
