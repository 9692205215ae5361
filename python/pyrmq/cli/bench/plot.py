"""Plots a measurement: the rate over time, and the distribution of latencies."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyrmq.cli.bench.figures import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq.cli.bench.figures import Figures

_SHARES = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0)


def write(measured: Sequence[Figures], path: str, matplotlib: Any) -> None:  # noqa: ANN401
    """Draw the figures into a file; its suffix chooses the format."""
    matplotlib.use("agg")
    plots: Any = import_module("matplotlib.pyplot")
    figure, (left, right) = plots.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for one in measured:
        label = f"{one.client}, {one.how}: {one.rate:,.0f}/s"
        left.plot(*_rates(one), label=label)
        if one.latencies:
            spread = [(percentile(one.latencies, share) or 0.0) * 1e3 for share in _SHARES]
            right.plot(range(len(_SHARES)), spread, marker="o", label=label)
    left.set(title="Rate", xlabel="seconds", ylabel="messages a second", ylim=(0, None))
    left.legend(loc="lower right", fontsize="small")
    right.set(title="Latency", xlabel="percentile", ylabel="ms", yscale="log")
    right.set_xticks(range(len(_SHARES)), [f"{share * 100:g}" for share in _SHARES])
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plots.close(figure)


def _rates(one: Figures) -> tuple[list[float], list[float]]:
    """Times, and messages per second between each two samples."""
    samples = [(0.0, 0), *one.timeline]
    times, rates = [], []
    for (before, had), (now, done) in pairwise(samples):
        if now > before:
            times.append(now)
            rates.append((done - had) / (now - before))
    return times, rates
