"""Act two: sends the weather, reads the joined hours and the alerts back, shows and checks them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from examples.flights import data
from rich.console import Group
from rich.table import Table

from pyrmq import Admin, Message, Producer, PullConsumer

if TYPE_CHECKING:
    from collections.abc import Mapping

WEATHER, HOURS, ALERTS = "weather", "hours", "alerts"
BATCH = 2_000
SHOWN = 6
ENOUGH_ROWS = 6_000
"""Flights of a week: the hours of its first days are closed."""
AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}


class Hour(NamedTuple):
    """Departures of one airport in one hour, and the weather there."""

    origin: str
    hour: str
    flights: int
    departed: int
    minutes: int
    delay: float | None
    temp: float | None
    wind: float | None
    precip: float | None
    visib: float | None
    is_alert: bool

    @property
    def weather(self) -> str:
        """Describe the weather in a few words."""
        parts = []
        if self.precip:
            kind = "snow" if self.temp is not None and self.temp <= 32 else "rain"
            parts.append(f"{kind} {self.precip:.2f} in")
        if self.wind is not None and self.wind >= 15:
            parts.append(f"wind {self.wind:.0f} mph")
        if self.visib is not None and self.visib < 5:
            parts.append(f"view {self.visib:.1f} miles")
        return ", ".join(parts) or "fair"


def send(name_server: str, years: int) -> set[tuple[str, str]]:
    """Create the topics of the second act, and send the weather.

    Returns:
        Airport and hour of each message.
    """
    with Admin(name_server=name_server) as admin:
        for topic in (WEATHER, HOURS, ALERTS):
            admin.create_topic(topic, queues=2)
    sent = set()
    messages = []
    for origin, hour, body in data.weather(years):
        sent.add((origin, f"{hour[:10]} {hour[11:16]}"))
        messages.append(Message(WEATHER, body, tags=origin))
    with Producer(name_server=name_server, group="weather") as producer:
        for first in range(0, len(messages), BATCH):
            producer.send_batch(WEATHER, messages[first : first + BATCH])
    return sent


def no_hours(rows: int) -> str:
    """Return why the pipeline ended without an hour, and what to do, in one line."""
    if rows < ENOUGH_ROWS:
        return (
            "no hour came back from Spark: an hour is closed by flights three days later, and"
            f" {rows:,} flights are too few days: run again with --rows {ENOUGH_ROWS} or more"
        )
    return "no hour came back from Spark, although its pipeline has ended"


def stuck(seconds: float, hours: int) -> str:
    """Return that the pipeline still runs but gives nothing any more, and what to do."""
    return (
        f"pipeline weather has not moved for {seconds:.0f} s and does not end; {hours:,} hours came"
        " back: on a busy machine run again with fewer --rows"
    )


@dataclass
class Board:
    """The hours that came back from Spark, by topic.

    Args:
        name_server: address of the name server.
    """

    name_server: str
    hours: list[Hour] = field(default_factory=list)
    _consumer: PullConsumer | None = None

    def open(self) -> None:
        """Start to read both topics from their first message."""
        self._consumer = PullConsumer(name_server=self.name_server, group="board")
        queues = [q for topic in (HOURS, ALERTS) for q in self._consumer.queues(topic)]
        self._consumer.assign(dict.fromkeys(queues, 0))

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()

    def take(self, seconds: float) -> int:
        """Take the messages that are there, or wait so long for one; return how many came."""
        assert self._consumer is not None
        messages = self._consumer.poll(timeout=seconds)
        for message in messages:
            values = json.loads(message.body)
            names = [name for name in Hour._fields if name != "is_alert"]
            self.hours.append(
                Hour(**{name: values.get(name) for name in names}, is_alert=message.topic == ALERTS)
            )
        return len(messages)

    def stored(self) -> int:
        """Return how many hours the broker holds."""
        assert self._consumer is not None
        bounds = [self._consumer.bounds(queue) for queue in self._consumer.assignment()]
        return sum(highest - lowest for lowest, highest in bounds)

    @property
    def newest(self) -> str:
        """The latest hour that came."""
        return max((hour.hour for hour in self.hours), default="no hour yet")

    def show(self) -> Group:
        """Return the live tables: the airports, and the latest alerts."""
        return Group(self._airports(), self._alerts())

    def _airports(self) -> Table:
        shown = Table(title=f"Hours until {self.newest} UTC", title_justify="left")
        for name in ("airport", "hours", "flights", "mean delay", "alerts"):
            shown.add_column(name, justify="left" if name == "airport" else "right")
        for code, name in AIRPORTS.items():
            own = [hour for hour in self.hours if hour.origin == code]
            departed = sum(hour.departed for hour in own)
            mean = sum(hour.minutes for hour in own) / departed if departed else 0.0
            alerts = sum(hour.is_alert for hour in own)
            flights = sum(hour.flights for hour in own)
            shown.add_row(
                name, f"{len(own):,}", f"{flights:,}", f"{mean:.1f} min", f"[red]{alerts:,}"
            )
        return shown

    def _alerts(self) -> Table:
        shown = Table(title="Latest alerts, from their topic", title_justify="left")
        for name in ("hour, UTC", "airport", "flights", "mean delay", "weather"):
            is_number = name in ("flights", "mean delay")
            shown.add_column(name, justify="right" if is_number else "left", min_width=10)
        alerts = sorted((hour for hour in self.hours if hour.is_alert), key=lambda h: h.hour)
        for hour in alerts[-SHOWN:]:
            airport, delay = AIRPORTS[hour.origin], f"[red]{hour.delay:.0f} min"
            shown.add_row(hour.hour, airport, str(hour.flights), delay, hour.weather)
        return shown

    def faults(
        self, flights: Mapping[tuple[str, str], tuple[int, int]], weather: set[tuple[str, str]]
    ) -> list[str]:
        """Compare the hours with the flights in Parquet, counted at once.

        Every hour up to the newest one that has flights and weather must be there once, with the
        same flights and minutes of delay: nothing came too late for its window.
        """
        wanted = {
            place: counted
            for place, counted in flights.items()
            if place in weather and place[1] <= self.newest
        }
        found = {(hour.origin, hour.hour): (hour.flights, hour.minutes) for hour in self.hours}
        wrong = []
        if len(found) != len(self.hours):
            wrong.append(f"hours that came twice: {len(self.hours) - len(found):,}")
        differ = [place for place in {*wanted, *found} if wanted.get(place) != found.get(place)]
        if differ:
            place = min(differ, key=lambda found: found[1])
            wrong.append(
                f"{len(differ):,} hours differ, as {place}: {found.get(place)} by windows,"
                f" {wanted.get(place)} in Parquet"
            )
        return wrong
