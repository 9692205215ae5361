"""The file that a run of `make bench` leaves: every figure, and what it was measured on."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import re
import subprocess
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.open_loop import PERCENTILES
from benches.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT = 2
ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = (
    *("pyrmq-rocketmq", "confluent-kafka", "aiokafka", "nats-py", "hdrhistogram"),
    *("pyarrow", "pyspark"),
)
BUSY = 1.0
"""Load average at the start of a run above which the machine counts as busy."""


class ResultsError(ValueError):
    """A results file cannot be used; the text says why."""


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": round(load, 2),
        "busy": load > BUSY,
    }


def _processor() -> str:
    """Return the model of the first processor; nothing where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "")


def _installed() -> dict[str, str]:
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


TOP: dict[str, type] = {
    "taken": str,
    "commit": str,
    "options": dict,
    "machine": dict,
    "versions": dict,
}
TEXTS = ("name", "what", "unit", "target", "rival")
SAMPLES = ("figures", "cpu_us", "client_us", "resident_mib")
NEWER_SAMPLES = ("server_mib",)
"""Those that older files do not have."""
STATES = ("", "fresh", "held")
HISTOGRAM = "HIST"
"""Begins the compressed form of an HdrHistogram."""


def problems(raw: Mapping[str, Any]) -> list[str]:
    """Say what is wrong with the content of a results file, and where.

    Example:
        >>> problems({"rows": [], "taken": 5})[0]
        '`taken` is 5, not a str'
    """
    found = [
        f"`{key}` is {raw.get(key)!r}, not a {kind.__name__}"
        for key, kind in TOP.items()
        if not isinstance(raw.get(key), kind)
    ]
    names: set[object] = set()
    for at, row in enumerate(raw["rows"]):
        if not isinstance(row, dict):
            found.append(f"row {at} is no object")
            continue
        where = f"row {row.get('name', at)}"
        found += [
            f"{where}: `{key}` is no text" for key in TEXTS if not isinstance(row.get(key), str)
        ]
        name = slug(str(row.get("name")))
        if not name:
            found.append(f"{where}: `name` has no ASCII letter or digit")
        if name in names:
            found.append(f"{where} is there twice")
        names.add(name)
        for key in SAMPLES:
            found += _of_samples(f"{where}: `{key}`", row.get(key))
        for key in NEWER_SAMPLES:
            found += _of_samples(f"{where}: `{key}`", row.get(key, {}))
        found += _of_flags(f"{where}: `steady`", row.get("steady", {}))
        if row.get("memory", "") not in STATES:
            found.append(f"{where}: `memory` is {row['memory']!r}, not fresh or held")
        found += _of_latencies(f"{where}: `latencies`", row.get("latencies", {}))
        found += _of_sides(f"{where}: `percentiles`", row.get("percentiles", {}))
        if not row.get("figures"):
            found.append(f"{where} has no figures")
    return found


def _is_finite(value: float) -> bool:
    """Return whether a figure is one, and no integer that is too large for a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _of_samples(where: str, samples: object) -> Iterator[str]:
    if not isinstance(samples, dict):
        yield f"{where} is no object"
        return
    for side, values in samples.items():
        good = isinstance(values, list) and all(
            type(value) in {int, float} and _is_finite(value) for value in values
        )
        if not good or not values:
            yield f"{where}, {side}: {str(values)[:60]} are no figures"


def _of_flags(where: str, flags: object) -> Iterator[str]:
    if not isinstance(flags, dict) or not all(isinstance(flag, bool) for flag in flags.values()):
        yield f"{where} is {str(flags)[:60]}, not true or false by side"


def _of_latencies(where: str, latencies: object) -> Iterator[str]:
    if not isinstance(latencies, dict):
        yield f"{where} is no object"
        return
    for side, turns in latencies.items():
        if not isinstance(turns, list) or not turns:
            yield f"{where}, {side}: {str(turns)[:60]} are no turns"
            continue
        for turn in turns:
            yield from _of_turn(f"{where}, {side}", turn)


def _of_turn(where: str, turn: object) -> Iterator[str]:
    """Check a summary of `benches.open_loop`."""
    yield from _of_percentiles(where, turn)
    if not isinstance(turn, dict):
        return
    for prefix in ("", "late_"):
        text = turn.get(prefix + "histogram")
        if not isinstance(text, str) or not text.startswith(HISTOGRAM):
            yield f"{where}: `{prefix}histogram` is no histogram"


def _of_sides(where: str, percentiles: object) -> Iterator[str]:
    if not isinstance(percentiles, dict):
        yield f"{where} is no object"
        return
    for side, of_all in percentiles.items():
        yield from _of_percentiles(f"{where}, {side}", of_all)


def _of_percentiles(where: str, found: object) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{where}: {str(found)[:60]} is no object"
        return
    for name in (prefix + name for prefix in ("", "late_") for name in PERCENTILES):
        value = found.get(name)
        if not isinstance(value, int | float) or not _is_finite(value):
            yield f"{where}: `{name}` is {value!r}, not a figure"


class ResultsFile:
    """The file of a run. It is replaced after each row, so a failure loses no finished row.

    Attributes:
        path: the file; it exists once a row is added.
        rows: those added so far.
    """

    def __init__(
        self, directory: Path, *, machine: dict[str, Any], options: dict[str, Any]
    ) -> None:
        """Name the file by the current time. `options` are those of the run."""
        now = datetime.datetime.now(tz=datetime.UTC)
        self.path = directory / f"{now:%Y%m%dT%H%M%S}.json"
        self.rows: list[Row] = []
        self._head = {
            "format": FORMAT,
            "taken": now.isoformat(timespec="seconds"),
            "commit": _commit(),
            # Without the directory of the results, which is a path of one machine.
            "options": {name: value for name, value in options.items() if name != "out"},
            "machine": machine,
            "versions": _installed(),
        }

    def add(self, row: Row) -> None:
        """Add a finished row and write the file."""
        self.rows.append(row)
        rows = [
            {**vars(one), "name": slug(one.name or one.what), "ratio": one.ratio()}
            for one in self.rows
        ]
        text = json.dumps({**self._head, "rows": rows}, indent=1, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_suffix(".new")
        written.write_text(text + "\n", encoding="utf-8")
        written.replace(self.path)


def _commit() -> str:
    git = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout.strip()


def load(path: Path) -> dict[str, Row]:
    """Read the rows of a results file, by name.

    Raises:
        ResultsError: It is missing, no results file, or of another format.
    """
    return rows_of(read(path))


def read(path: Path) -> dict[str, Any]:
    """Read a results file.

    Raises:
        ResultsError: It is missing, no results file, or of another format.
    """
    raw = parsed(path, "rows")
    wrong = problems(raw)
    if wrong:
        raise ResultsError(f"{path}: {'; '.join(wrong[:5])}")
    return raw


def parsed(path: Path, part: str) -> dict[str, Any]:
    """Read a file of figures whose content is a list below the key `part`.

    Raises:
        ResultsError: It is missing, something else, or of another format.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ResultsError(f"{path} is no JSON: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get(part), list):
        kind = "results file of `make bench`" if part == "rows" else "file of released figures"
        raise ResultsError(f"{path} is no {kind}")
    if raw.get("format") != FORMAT:
        raise ResultsError(
            f"{path} has format {raw.get('format')}, this program reads {FORMAT}: measure again, "
            "or use the program of the commit that wrote it"
        )
    return raw


def slug(text: str) -> str:
    """Return a row's name, which a command line or a page can list: a text without blanks.

    Example:
        >>> slug("Java client with TLS, 64 threads")
        'java-client-with-tls-64-threads'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def rows_of(raw: dict[str, Any]) -> dict[str, Row]:
    """Return the rows of a results file, by name."""
    known = {one.name for one in fields(Row)}
    rows = [
        Row(**{key: value for key, value in row.items() if key in known}) for row in raw["rows"]
    ]
    return {slug(row.name): row for row in rows}
