"""Pictures of released figures, as SVG: how many times better each row is, with its range.

They depend on nothing but these, so that a test can hold the committed ones equal to them.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benches.row import Row

WIDTH, LINE, HEAD, FOOT = 1120, 34, 64, 40
LABELS, NUMBERS = 580, 170
"""Columns of the texts, left and right of the bars."""
BARS = WIDTH - LABELS - NUMBERS
OWN = {"alone", "disk", "pyrmq", "without"}
"""Other sides of a row that are no other system: pyrmq under other conditions, or the machine."""
COLOURS = {"better": "#2f7ed8", "worse": "#c0504d", "range": "#333333", "grid": "#cccccc"}


def ratios(rows: Sequence[Row], machines: Sequence[dict[str, Any]]) -> str:
    """Draw the ratio of each row that compares with another system, in the given order."""
    drawn = [row for row in rows if row.ratio() is not None and row.rival not in OWN]
    largest = max((max(row.ratios()) for row in drawn), default=1.0)
    scale = BARS / max(largest, 1.0)
    height = HEAD + LINE * len(drawn) + FOOT
    one = LABELS + scale
    sizes = dict.fromkeys(
        f"{machine.get('cores')} cores, {machine.get('memory_gib')} GiB" for machine in machines
    )
    foot = f"{' and '.join(sizes)}; the line is the range over the turns"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="30" font-size="18">pyrmq / the other: above 1 pyrmq is better</text>',
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{HEAD - 10}" y2="{height - FOOT}" '
        f'stroke="{COLOURS["grid"]}"/>',
        f'<text x="{one:.1f}" y="{HEAD - 14}" text-anchor="middle" font-size="12">1</text>',
        *(part for at, row in enumerate(drawn) for part in _bar(row, HEAD + at * LINE, scale)),
        f'<text x="16" y="{height - 14}" font-size="12">{escape(foot)}</text>',
        "</svg>\n",
    ]
    return "\n".join(parts)


def _bar(row: Row, top: float, scale: float) -> Iterator[str]:
    ratio, turns = row.ratio(), row.ratios()
    assert ratio is not None
    low, high = LABELS + min(turns) * scale, LABELS + max(turns) * scale
    middle = top + LINE / 2
    colour = COLOURS["better" if ratio >= 1 else "worse"]
    label = escape(row.label.replace("`", ""))
    yield f'<text x="16" y="{middle + 5:.1f}">{label}</text>'
    yield (
        f'<rect x="{LABELS}" y="{top + 7:.1f}" width="{ratio * scale:.1f}" height="{LINE - 14}" '
        f'fill="{colour}"/>'
    )
    yield (
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}" '
        f'stroke="{COLOURS["range"]}" stroke-width="2"/>'
    )
    numbers = f"{ratio:.2f} ({min(turns):.2f} to {max(turns):.2f})"
    yield f'<text x="{WIDTH - NUMBERS + 12}" y="{middle + 5:.1f}">{numbers}</text>'
