"""The output of commands: aligned tables for people, JSON lines for programs."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
_NARROWEST = 8


def print_rows(headers: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Print rows: one JSON object a line, or a table no wider than the terminal.

    Args:
        headers: names of the columns; in JSON they are keys, with `_` for blanks.
        rows: the values.
        as_json: whether a program reads it.

    Example:
        >>> print_rows(["topic", "queues"], [["orders", 8]], as_json=False)
        topic   queues
        orders       8
    """
    if as_json:
        import json

        keys = [header.replace(" ", "_") for header in headers]
        for row in rows:
            print(json.dumps(dict(zip(keys, row, strict=True)), ensure_ascii=False))
        return
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None
    for line in table(headers, rows, width):
        print(line)


def table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None
) -> list[str]:
    """Lines of a table: columns aligned, numbers to the right, the widest cut to fit `width`.

    Example:
        >>> table(["a", "b"], [["x", 1], ["long", 22]])
        ['a      b', 'x      1', 'long  22']
    """
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    right = [
        bool(rows) and all(isinstance(row[at], int | float | None) for row in rows)
        for at in range(len(headers))
    ]
    widths = [
        max([len(header), *(len(row[at]) for row in texts)]) for at, header in enumerate(headers)
    ]
    if width is not None:
        while sum(widths) + len(_GAP) * (len(widths) - 1) > width and max(widths) > _NARROWEST:
            widths[widths.index(max(widths))] -= 1
    lines = []
    for row in [list(headers), *texts]:
        cells = []
        for text, size, to_right in zip(row, widths, right, strict=True):
            cut = text if len(text) <= size else text[: size - 1] + "…"
            cells.append(cut.rjust(size) if to_right else cut.ljust(size))
        lines.append(_GAP.join(cells).rstrip())
    return lines


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "topic"), counted(2, "topic")
        ('1 topic', '2 topics')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


def span(seconds: float) -> str:
    """A duration in its two largest units.

    Example:
        >>> span(3725)
        '1 h 2 min'
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    named = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(named[:2]) or "0 s"


def clear() -> None:
    """Clear the terminal, if the output goes to one."""
    if sys.stdout.isatty():
        print("\x1b[H\x1b[2J", end="")
