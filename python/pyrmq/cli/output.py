"""The output of commands: aligned tables for people, JSON lines for programs."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
_NARROWEST = 8
_COLUMNS = 80
"""Width of a terminal that does not tell it."""
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

    # An escape of another encoding than UTF-8 would be no JSON.
    encoding = sys.stdout.encoding or "utf-8"
    is_utf8 = encoding.lower().replace("-", "") == "utf8"
    text = json.dumps(tree, ensure_ascii=not is_utf8)
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
    for line in table(headers, rows, terminal_width()):
        print(line)


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None if it is none.

    Example:
        >>> terminal_width()  # doctest: +SKIP
        100
    """
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None


def table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None
) -> list[str]:
    """Lines of a table: columns aligned, numbers to the right, the widest cut to fit `width`.

    If `width` is too small for the columns side by side, each row is a block: a line for each
    value, after its header.

    Example:
        >>> table(["a", "b"], [["x", 1], ["long", 22]])
        ['a      b', 'x      1', 'long  22']
        >>> table(["topic", "broker"], [["orders", "broker-a"]], width=14)
        ['topic   orders', 'broker  broke…']
    """
    texts = [["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    if width is not None:
        # Bodies may be long: what cannot be shown need not be measured.
        texts = [[_fitting(text, width + 1) for text in row] for row in texts]
    right = [
        bool(rows) and all(isinstance(row[at], int | float | None) for row in rows)
        for at in range(len(headers))
    ]
    widths = [
        max([columns_of(header), *(columns_of(row[at]) for row in texts)])
        for at, header in enumerate(headers)
    ]
    if width is not None:
        gaps = len(_GAP) * (len(widths) - 1)
        if sum(min(size, _NARROWEST) for size in widths) + gaps > width:
            return _blocks(headers, texts, width)
        while sum(widths) + gaps > width:
            widths[widths.index(max(widths))] -= 1
    lines = []
    for row in [list(headers), *texts]:
        cells = [
            _padded(text, size, to_right=to_right)
            for text, size, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _blocks(headers: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> list[str]:
    if not texts:
        return [_cut(_GAP.join(headers), width)]
    lines: list[str] = []
    size = min(max(map(columns_of, headers)), max(1, width // 2))
    for row in texts:
        lines += [""] if lines else []
        lines += [
            _cut(f"{_padded(header, size)}{_GAP}{text}".rstrip(), width)
            for header, text in zip(headers, row, strict=True)
        ]
    return lines


def _padded(text: str, size: int, *, to_right: bool = False) -> str:
    text = _cut(text, size)
    blanks = " " * (size - columns_of(text))
    return blanks + text if to_right else text + blanks


def _cut(text: str, size: int) -> str:
    return text if columns_of(text) <= size else _fitting(text, size - 1) + "…"


def _fitting(text: str, size: int) -> str:
    """The beginning of a text that takes at most `size` columns."""
    if text.isascii():
        return text[:size]
    taken = 0
    for at, one in enumerate(text):
        taken += _columns_of_one(one)
        if taken > size:
            return text[:at]
    return text


def columns_of(text: str) -> int:
    """Columns that a text takes on a terminal: East Asian characters take two, accents none.

    Example:
        >>> columns_of("tea"), columns_of("お茶")
        (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns_of_one, text))


def _columns_of_one(character: str) -> int:
    from unicodedata import category, east_asian_width

    if category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def shows_progress() -> bool:
    """Whether standard error is a terminal that can wipe a line; `TERM=dumb` says that not.

    Example:
        >>> shows_progress()  # doctest: +SKIP
        False
    """
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def show_progress(text: str) -> None:
    """Show a step in place of the one before, in one line of the terminal; "" wipes it.

    Nothing is written if standard error is no terminal.

    Example:
        >>> show_progress("1000 messages")
    """
    if not shows_progress():
        return
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        columns = _COLUMNS
    # A terminal that has its last column filled may begin a new line.
    sys.stderr.write(f"\r\x1b[K{_fitting(escaped(text), columns - 1)}")
    sys.stderr.flush()


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
