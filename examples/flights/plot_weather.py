"""The picture of the second act: a calendar of delays, and what the weather has to do with them."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from examples.flights.plot import BLUE, GRID, INK, PALE, QUIET, RED
from examples.flights.weather import AIRPORTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from examples.flights.weather import Hour

_NEW_YORK = timedelta(hours=-5)
_WORST = 3
_CELL = 0.86


def draw(hours: list[Hour], path: Path) -> None:
    """Draw the hours of the first year, and save the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    first = min(hour.hour for hour in hours)[:4]
    year = [hour for hour in hours if _day(hour).year == int(first)]
    figure = plt.figure(figsize=(15, 9.2))
    figure.text(0.075, 0.945, "Bad weather, long waits", fontsize=22, fontweight="bold", color=INK)
    flights = sum(hour.flights for hour in year)
    figure.text(
        0.075,
        0.908,
        f"{flights:,} flights by airport and hour, joined with the hour's weather while both"
        " streams ran. The windows of the last three days stay open.",
        color=QUIET,
        fontsize=12,
    )
    calendar = figure.add_axes((0.075, 0.505, 0.84, 0.33))
    scale = figure.add_axes((0.928, 0.53, 0.012, 0.28))
    _calendar(calendar, scale, year)
    _weather(figure.add_axes((0.165, 0.075, 0.36, 0.31)), year)
    _alerts(figure.add_axes((0.6, 0.075, 0.365, 0.31)), year)
    figure.savefig(path, dpi=130, facecolor="white")
    plt.close(figure)


def _day(hour: Hour) -> date:
    """Return the day of departure in New York: there are no flights near midnight in summer."""
    return (datetime.fromisoformat(hour.hour) + _NEW_YORK).date()


def _mean(hours: Iterable[Hour]) -> float:
    listed = list(hours)
    departed = sum(hour.departed for hour in listed)
    return sum(hour.minutes for hour in listed) / departed if departed else 0.0


def _calendar(axes, scale, hours: list[Hour]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    from matplotlib.colorbar import ColorbarBase
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.patches import Rectangle

    by_day: dict[date, list[Hour]] = defaultdict(list)
    for hour in hours:
        by_day[_day(hour)].append(hour)
    means = {day: _mean(own) for day, own in by_day.items()}
    start = date(min(means).year, 1, 1)
    colors = LinearSegmentedColormap.from_list("delay", ["#eef3f8", "#f6cfae", RED, "#6b1420"])
    norm = Normalize(0, 80, clip=True)

    def place(day: date) -> tuple[int, int]:
        return ((day - start).days + start.weekday()) // 7, day.weekday()

    for day, mean in means.items():
        at = place(day)
        axes.add_patch(Rectangle(at, _CELL, _CELL, facecolor=colors(norm(mean)), linewidth=0))
    worst = sorted(means, key=lambda day: means[day], reverse=True)[:_WORST]
    for day in worst:
        axes.add_patch(Rectangle(place(day), _CELL, _CELL, fill=False, edgecolor=INK, linewidth=2))
    months = [date(start.year, month, 1) for month in range(1, 13)]
    axes.set_xticks([place(month)[0] + 2.2 for month in months])
    axes.set_xticklabels([f"{month:%B}" for month in months], color=QUIET)
    axes.set_yticks([row + _CELL / 2 for row in (0, 2, 4, 6)])
    axes.set_yticklabels(["Monday", "Wednesday", "Friday", "Sunday"], color=QUIET)
    axes.set_xlim(-0.2, 53.2)
    axes.set_ylim(7, -0.2)
    axes.tick_params(length=0)
    named = "   ".join(f"{day.day} {day:%B}: {means[day]:.0f} min" for day in sorted(worst))
    axes.set_title(
        f"Mean departure delay of each day.  The worst:  {named}",
        loc="left",
        fontsize=13,
        fontweight="bold",
        color=INK,
    )
    bar = ColorbarBase(scale, cmap=colors, norm=norm, ticks=[0, 20, 40, 60, 80])
    bar.ax.set_yticklabels(["0 min", "20", "40", "60", "80+"], color=QUIET)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    _clean(axes)


def _weather(axes, hours: list[Hour]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    kinds = {
        "fair": [hour for hour in hours if hour.weather == "fair"],
        "wind, 15 mph or more": [hour for hour in hours if "wind" in hour.weather],
        "rain": [hour for hour in hours if "rain" in hour.weather],
        "view under 5 miles": [hour for hour in hours if "view" in hour.weather],
        "snow": [hour for hour in hours if "snow" in hour.weather],
    }
    kinds = {name: own for name, own in kinds.items() if own}
    means = {name: _mean(own) for name, own in kinds.items()}
    names = sorted(means, key=lambda name: means[name])
    worst = max(means.values())
    colors = [RED if means[name] == worst else BLUE for name in names]
    bars = axes.barh(names, [means[name] for name in names], color=colors, height=0.66)
    for bar, name in zip(bars, names, strict=True):
        share = sum(hour.is_alert for hour in kinds[name]) / len(kinds[name])
        axes.text(
            max(means[name], 0) + worst * 0.02,
            bar.get_y() + bar.get_height() / 2,
            f"{means[name]:.0f} min   {len(kinds[name]):,} hours, {share:.1%} alerts",
            va="center",
            color=QUIET,
            fontsize=10,
        )
    axes.set_xlim(min(0.0, *means.values()), worst * 1.6)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=11)
    axes.set_title("Mean delay by weather", loc="left", fontsize=13, fontweight="bold", color=INK)
    _clean(axes)


def _alerts(axes, hours: list[Hour]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    months = range(1, 13)
    below = [0] * 12
    for (code, name), color in zip(AIRPORTS.items(), (BLUE, PALE, RED), strict=True):
        counts = [
            sum(
                hour.is_alert and hour.origin == code and _day(hour).month == month
                for hour in hours
            )
            for month in months
        ]
        axes.bar(months, counts, bottom=below, color=color, width=0.72, label=name)
        below = [base + count for base, count in zip(below, counts, strict=True)]
    axes.set_xticks(list(months))
    axes.set_xticklabels([f"{date(2013, month, 1):%b}" for month in months], color=QUIET)
    axes.tick_params(length=0, labelcolor=QUIET)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.legend(frameon=False, ncols=3, loc="upper right", labelcolor=INK)
    axes.set_ylim(0, max(4, max(below) * 1.25))
    axes.set_title(
        "Alerts: hours with 60 minutes of mean delay or more",
        loc="left",
        fontsize=13,
        fontweight="bold",
        color=INK,
    )
    _clean(axes)


def _clean(axes) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    for spine in axes.spines.values():
        spine.set_visible(False)
