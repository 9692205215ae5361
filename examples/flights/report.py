"""The report: sent messages compared with Spark's rows, month by month, and the rates."""

from __future__ import annotations

import calendar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.table import Table

if TYPE_CHECKING:
    from examples.flights.data import Tally
    from examples.flights.sender import Counts
    from rich.console import Console


@dataclass
class Findings:
    """The figures that the report compares."""

    rows: int
    counts: Counts
    sent: Tally
    stored: int = 0
    read: int = 0
    written: Tally | None = None
    keys: int = 0
    batches: int = 0
    rates: list[tuple[str, str]] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Return the figures that differ but must not."""
        written = self.written.months if self.written is not None else {}
        settled = self.counts.acknowledged + self.counts.found_stored
        numbers = {
            "flights sent": self.counts.sent,
            "acknowledged or found stored": settled,
            "stored by the broker": self.stored,
            "read by Spark": self.read,
            "rows in Parquet": sum(count for count, _ in written.values()),
            "distinct keys in Parquet": self.keys,
        }
        wrong = [
            f"{name}: {number:,} instead of {self.rows:,}"
            for name, number in numbers.items()
            if number != self.rows
        ]
        return wrong + [
            f"{calendar.month_name[month]}: sent {self.sent.months.get(month)},"
            f" in Parquet {written.get(month)}"
            for month in sorted({*self.sent.months, *written})
            if self.sent.months.get(month) != written.get(month)
        ]


def show(console: Console, findings: Findings) -> bool:
    """Print the report; return whether everything is equal."""
    counts = findings.counts
    written = findings.written.months if findings.written is not None else {}
    months = Table(title="Month by month", title_justify="left")
    for name in ("month", "sent", "in Parquet", "checksum sent", "checksum in Parquet", ""):
        months.add_column(name, justify="left" if name in ("month", "") else "right")
    for month in sorted({*findings.sent.months, *written}):
        sent, got = findings.sent.months.get(month), written.get(month)
        months.add_row(
            calendar.month_name[month],
            *(f"{side[0]:,}" if side else "none" for side in (sent, got)),
            *(f"{side[1]:015d}" if side else "none" for side in (sent, got)),
            "[green]equal" if sent == got else "[bold red]DIFFERENT",
        )
    totals = Table.grid(padding=(0, 2))
    for name, number in (
        ("flights sent", counts.sent),
        ("acknowledged by the broker", counts.acknowledged),
        ("unknown when it was killed", counts.unknown),
        ("  found stored, not sent again", counts.found_stored),
        ("sent again, not stored before", counts.sent_again),
        ("stored (offsets of the queues)", findings.stored),
        ("read by Spark (offsets of the checkpoint)", findings.read),
        ("distinct keys in Parquet", findings.keys),
    ):
        totals.add_row(name, f"[bold]{number:,}")
    for name, text in findings.rates:
        totals.add_row(name, text)
    console.print(months)
    console.print(totals)
    faults = findings.faults()
    if faults:
        console.print(
            Panel("\n".join(faults), title="MESSAGES WERE LOST OR DOUBLED", style="bold red")
        )
        return False
    console.print(
        Panel(
            f"{findings.rows:,} flights sent, {findings.rows:,} in Parquet, each once, every byte"
            " the same:\nthe broker was killed with -9 on the way, the pipeline stopped and started"
            " again.",
            title="none lost, none doubled",
            style="green",
        )
    )
    return True


def show_second(console: Console, faults: list[str]) -> bool:
    """Print whether the hours that came back are those in Parquet."""
    if faults:
        console.print(Panel("\n".join(faults), title="HOURS DIFFER", style="bold red"))
        return False
    console.print(
        Panel(
            "Every closed hour with weather came back once, with the flights and minutes of delay"
            " that Parquet has.",
            title="windows and join are exact",
            style="green",
        )
    )
    return True
