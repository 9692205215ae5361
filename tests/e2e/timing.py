"""Bounds on time that tell a slow product from a busy machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES = 5


def least(attempt: Callable[[], float], enough: float) -> float:
    """Repeat an attempt until its figure is low enough; return the least figure of all.

    Other work on the machine delays one attempt. A product that is slow delays each.

    Args:
        attempt: does the work and returns seconds, or another figure that grows with them.
        enough: a figure that ends the repetition.
    """
    figures: list[float] = []
    while len(figures) < TRIES:
        figures.append(attempt())
        if figures[-1] <= enough:
            break
    return min(figures)
