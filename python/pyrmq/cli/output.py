"""The output of commands: aligned tables for people, JSON lines for programs."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
_NARROWEST = 8
# Characters that control a terminal: C0 but tab, DEL, C1, and marks of the text's direction.
_CONTROLS = frozenset(
    {*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
)
_ESCAPES = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _CONTROLS - {ord("\t")}
}
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in _CONTROLS}


def escaped(text: str) -> str:
    r"""Text from a peer with its control characters escaped: they could rewrite the terminal.

    Example:
        >>> escaped("\x1b[2J")
        '\\x1b[2J'
    """
    return text.translate(_ESCAPES)


def print_text(text: str, *, keep_lines: bool = False) -> None:
    """Print text from a peer, escaped if a terminal shows it; a pipe gets it as it is.

    Args:
        text: what a peer sent.
        keep_lines: whether its line breaks stay.

    Example:
        >>> print_text("two coffees")
        two coffees
    """
    if sys.stdout.isatty():
        text = "\n".join(map(escaped, text.split("\n"))) if keep_lines else escaped(text)
    print(text)


def print_json(tree: object) -> None:
    """Print one JSON object in a line; on a terminal without raw control characters.

    Example:
        >>> print_json({"body": "tea"})
        {"body": "tea"}
    """
    import json

    text = json.dumps(tree, ensure_ascii=False)
    print(text.translate(_JSON_ESCAPES) if sys.stdout.isatty() else text)


def print_rows(headers: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Print rows: one JSON object per line, or a table no wider than the terminal.

    Args:
        headers: names of the columns; in JSON they are keys, with `_` for blanks.
        rows: the values.
        as_json: whether to print JSON lines.

    Example:
        >>> print_rows(["topic", "queues"], [["orders", 8]], as_json=False)
        topic   queues
        orders       8
    """
    if as_json:
        keys = [header.replace(" ", "_") for header in headers]
        for row in rows:
            print_json(dict(zip(keys, row, strict=True)))
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
    texts = [["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
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
    """Clear the terminal if the output is one."""
    if sys.stdout.isatty():
        print("\x1b[H\x1b[2J", end="")
