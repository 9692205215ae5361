"""The plot: departure delays by hour and airline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.flights.data import YEAR_ROWS

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

INK, QUIET, GRID = "#1f2933", "#7b8794", "#e4e7eb"
BLUE, PALE, RED = "#2f6690", "#bcd4e6", "#d1495b"


def draw(
    by_hour: pd.DataFrame, by_carrier: pd.DataFrame, names: dict[str, str], rows: int, path: Path
) -> None:
    """Draw departure delay by hour of day and by airline, and save it."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 11,
            "text.color": INK,
            "axes.labelcolor": QUIET,
            "xtick.color": QUIET,
            "ytick.color": INK,
            "axes.edgecolor": GRID,
        }
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(15, 7.4), width_ratios=[1.15, 1])
    figure.subplots_adjust(left=0.055, right=0.965, top=0.80, bottom=0.10, wspace=0.38)
    title = "The later the hour, the later the flight"
    figure.text(0.055, 0.935, title, fontsize=22, fontweight="bold")
    figure.text(
        0.055,
        0.885,
        f"Departure delay of {rows:,} flights from New York City (JFK, LGA, EWR), 2013"
        f"{' repeated' if rows > YEAR_ROWS else ''}."
        " Every one of them went through the broker as a message.",
        color=QUIET,
        fontsize=12,
    )
    _hours(left, by_hour[by_hour.flights >= 100])
    _carriers(right, by_carrier[by_carrier.flights >= 25], names)
    figure.savefig(path, dpi=130, facecolor="white")
    plt.close(figure)


def _hours(axes, hours: pd.DataFrame) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    at = hours.hour
    quartile, median, upper, tenth = (
        [quantiles[number] for quantiles in hours.quantiles] for number in range(4)
    )
    axes.fill_between(at, quartile, tenth, color=PALE, alpha=0.35, linewidth=0)
    axes.fill_between(at, quartile, upper, color=PALE, linewidth=0)
    axes.plot(at, hours["mean"], color=RED, linewidth=2.5, marker="o", markersize=5)
    axes.plot(at, median, color=BLUE, linewidth=2.5, marker="o", markersize=5)
    axes.axhline(0, color=INK, linewidth=0.8)
    last = at.iloc[-1] + 0.25
    for values, text, color in ((list(hours["mean"]), "mean", RED), (median, "median", BLUE)):
        axes.text(last, values[-1], text, color=color, va="center", fontweight="bold")
    peak = len(at) * 3 // 5
    for values, text in ((tenth, "1 flight in 10 leaves later"), (upper, "1 in 4 leaves later")):
        place = (at.iloc[peak], values[peak])
        axes.annotate(
            text,
            place,
            (at.iloc[peak] - 1.2, values[peak] + 9),
            ha="right",
            color=QUIET,
            arrowprops={"arrowstyle": "-", "color": QUIET, "linewidth": 0.8},
        )
    axes.set_title("By scheduled hour of departure", loc="left", fontsize=13, fontweight="bold")
    axes.set_ylabel("minutes late (below 0: early)")
    axes.set_xticks(range(int(at.min()), int(at.max()) + 1, 2))
    axes.set_xticklabels([f"{hour}:00" for hour in range(int(at.min()), int(at.max()) + 1, 2)])
    axes.set_xlim(at.min() - 0.3, at.max() + 0.4)
    _clean(axes, "y")


def _carriers(axes, carriers: pd.DataFrame, names: dict[str, str]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    ordered = carriers.sort_values("mean")
    labels = [
        names.get(code, code)
        .removesuffix(" Inc.")
        .removesuffix(" Co.")
        .removesuffix(" Corporation")
        for code in ordered.carrier
    ]
    worst = ordered["mean"].max()
    colors = [RED if mean == worst else BLUE for mean in ordered["mean"]]
    bars = axes.barh(labels, ordered["mean"], color=colors, height=0.68)
    for bar, mean, late, flights in zip(
        bars, ordered["mean"], ordered.late, ordered.flights, strict=True
    ):
        axes.text(
            max(mean, 0) + worst * 0.02,
            bar.get_y() + bar.get_height() / 2,
            f"{mean:.0f} min   {late:.0%} late   {flights:,} flights",
            va="center",
            color=QUIET,
            fontsize=9.5,
        )
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_title(
        "By airline: mean delay, share over 15 minutes", loc="left", fontsize=13, fontweight="bold"
    )
    axes.set_xlim(min(0, ordered["mean"].min() * 1.2), worst * 1.75)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    _clean(axes, "")


def _clean(axes, grid: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=GRID, linewidth=0.8)
    else:
        axes.spines["bottom"].set_visible(False)
