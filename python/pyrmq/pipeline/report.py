"""The report of a run: figures as JSON, as a picture and as a page."""

from __future__ import annotations

import base64
import html
import json
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyrmq.spark.progress.figures import BatchFigures

__all__ = ["Report", "write_report"]


@dataclass
class Report:
    """One run of a pipeline.

    Attributes:
        name: the pipeline's name.
        started_at: seconds since 1970.
        seconds: how long it ran.
        rows: number of rows after the steps.
        rejected: how many of them were rejected.
        batches: figures of each batch with rows.
        dropped: rows that arrived later than a watermark and were left out, by the operator's name.
        error: why it failed; None if it did not.
    """

    name: str
    started_at: float = field(default_factory=time.time)
    seconds: float = 0.0
    rows: int = 0
    rejected: int = 0
    batches: list[dict[str, Any]] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    error: str | None = None

    def add(self, figures: BatchFigures) -> None:
        """Add one batch of the pipeline's main query."""
        for name, rows in figures.dropped.items():
            self.dropped[name] = self.dropped.get(name, 0) + rows
        if not figures.rows:
            return
        for observed in figures.observed.values():
            self.count(observed)
        self.batches.append({"at": round(time.time(), 3), **figures.as_json()})

    def count(self, observed: Mapping[str, Any]) -> None:
        """Add what a frame observed of its rows: unreadable before the steps, the rest after."""
        unreadable = int(observed.get("unreadable") or 0)
        self.rows += int(observed.get("rows") or 0) + unreadable
        self.rejected += int(observed.get("rejected") or 0) + unreadable

    @property
    def lag(self) -> int | None:
        """The lag at the end of the last batch."""
        return self.batches[-1]["lag"] if self.batches else None

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "name": self.name,
            "started_at": round(self.started_at, 3),
            "seconds": round(self.seconds, 3),
            "rows": self.rows,
            "rejected": self.rejected,
            "dropped": self.dropped,
            "rows_per_second": round(self.rows / self.seconds, 1) if self.seconds else 0.0,
            "lag": self.lag,
            "error": self.error,
            "batches": self.batches,
        }

    def __str__(self) -> str:
        """Return the run as one line."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        text = f"{self.name}: {self.rows:,} rows in {self.seconds:.1f} s, {rate:,.0f} rows/s"
        if self.rejected:
            text += f", {self.rejected:,} rejected"
        if self.dropped:
            text += f", {sum(self.dropped.values()):,} dropped as later than the watermark"
        if self.lag:
            text += f", {self.lag:,} still wait"
        return f"{text}: {'failed: ' + self.error if self.error else 'done'}"


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.json, report.html and, if matplotlib is installed, report.png.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "report.json"]
    written[0].write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    picture: Path | None = None
    if find_spec("matplotlib") is not None:
        picture = folder / "report.png"
        _draw(report, picture)
        written.append(picture)
    page = folder / "report.html"
    page.write_text(_page(report, picture), encoding="utf-8")
    return [*written, page]


def _draw(report: Report, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    numbers = [batch["batch"] for batch in report.batches]
    above.bar(numbers, [batch["rows_per_second"] for batch in report.batches], color="#2f6690")
    above.set_ylabel("rows/s")
    above.set_title(f"{report.name}: {report.rows:,} rows in {report.seconds:.1f} s", loc="left")
    below.plot(numbers, [batch["lag"] or 0 for batch in report.batches], color="#d1495b")
    below.set_ylabel("rows that wait")
    below.set_xlabel("batch")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


def _page(report: Report, picture: Path | None) -> str:
    head = ["batch", "rows", "seconds", "rows_per_second", "lag", "oldest_seconds"]
    rows = [[batch.get(name) for name in head] for batch in report.batches]
    image = ""
    if picture is not None:
        data = base64.b64encode(picture.read_bytes()).decode()
        image = f'<img alt="rows a second and lag" src="data:image/png;base64,{data}">'
    title = html.escape(report.name)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        "<style>body{font:15px sans-serif;margin:2em;color:#1f2933}td,th{padding:.2em .8em;"
        "text-align:right;border-bottom:1px solid #e4e7eb}img{max-width:100%}</style>"
        f"<h1>{title}</h1><p>{html.escape(str(report))}</p>{image}"
        f"<table><tr>{_cells(head, 'th')}</tr>"
        + "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
        + "</table></html>\n"
    )


def _cells(values: Sequence[object], tag: str) -> str:
    texts = ["-" if value is None else str(value).replace("_", " ") for value in values]
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
