"""One measured row: what `make bench` fills, saves and prints."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from benches.usage import resident_mib


@dataclass(kw_only=True)
class Row:
    """One line of the report.

    Attributes:
        name: of the row, for `--rows` and for comparing runs.
        what: text of the row.
        unit: of the figures.
        target: text of the target.
        rival: name in `figures` of the side that ours is compared with.
        figures: side name to its figures, in order of measurement.
        cpu_us: side name to microseconds of server CPU per message.
        client_us: side name to microseconds of the client's CPU per message.
        resident_mib: side name to the client's largest resident memory, in MiB.
        server_mib: side name to its server's resident memory after each turn, in MiB. It has the
            pages of mapped files, such as a Java broker's log.
        steady: side name to whether its figures were steady before its turns counted. A server or
            client on the JVM that still compiles is slower than the one that people run.
        memory: state of the page cache before each turn, `fresh` or `held`; empty if the row takes
            what there is.
        latencies: side name to the summaries of `benches.open_loop`, one for each turn; of rows
            that send on a schedule.
        percentiles: side name to the percentiles of all turns together, in µs; of released rows
            that send on a schedule.
        less_is_more: a smaller figure is better, as for each target that begins with `<=`.
    """

    name: str = ""
    what: str
    unit: str
    target: str
    rival: str = "apache"
    figures: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    client_us: dict[str, list[float]] = field(default_factory=dict)
    resident_mib: dict[str, list[float]] = field(default_factory=dict)
    server_mib: dict[str, list[float]] = field(default_factory=dict)
    steady: dict[str, bool] = field(default_factory=dict)
    memory: str = ""
    latencies: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    percentiles: dict[str, dict[str, float]] = field(default_factory=dict)
    less_is_more: bool = False

    def __post_init__(self) -> None:
        """Read the target: without it, half the time would count as worse."""
        self.less_is_more = self.less_is_more or self.target.startswith("<=")

    def add(
        self, side: str, value: float, cpu_us: float | None = None, *, server: int | None = None
    ) -> None:
        """Add one figure; `server` is the process whose resident memory is recorded with it."""
        self.figures.setdefault(side, []).append(value)
        if cpu_us is not None:
            self.cpu_us.setdefault(side, []).append(cpu_us)
        if server is not None:
            self.server_mib.setdefault(side, []).append(resident_mib(server))

    @property
    def label(self) -> str:
        """Return the text of the row with what tells it from other rows of that text."""
        text = f"{self.what}, {self.memory} memory" if self.memory else self.what
        return text if self.is_steady else f"{text}, not steady"

    @property
    def is_steady(self) -> bool:
        """Whether no side is known to have counted before its figures were steady."""
        return all(self.steady.values())

    def median(self, side: str) -> float:
        """Return the median of a side's figures."""
        return statistics.median(self.figures[side])

    def ratio(self) -> float | None:
        """Return how many times better our median is; None if one side is missing."""
        if not {"ours", self.rival} <= self.figures.keys():
            return None
        return self._better(self.median("ours"), self.median(self.rival))

    def ratios(self) -> list[float]:
        """Return how many times better ours was, turn by turn."""
        sides = (self.figures.get(side, []) for side in ("ours", self.rival))
        return [self._better(*pair) for pair in zip(*sides, strict=False)]

    def _better(self, ours: float, theirs: float) -> float:
        return theirs / ours if self.less_is_more else ours / theirs
