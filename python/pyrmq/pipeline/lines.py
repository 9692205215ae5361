"""The line of each key of a TOML file, which Python's parser does not report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Place", "find_lines"]

Place: TypeAlias = tuple[str, int, str]
"""Table, its number if there are several, key; empty without a table or key."""

_HEADER = re.compile(r"\s*(\[\[?)\s*([\w.\-]+)\s*\]")
_KEY = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([\w.\-]+))\s*=""")
_QUOTES = ('"""', "'''")


def find_lines(text: str) -> dict[Place, int]:
    r"""Return the line of every table and of every key in it.

    Example:
        >>> find_lines('[source]\ntopic = "a"')
        {('source', 0, ''): 1, ('source', 0, 'topic'): 2}
    """
    found: dict[Place, int] = {}
    table, number = "", 0
    counts: dict[str, int] = {}
    for line_number, line in _outside_of_texts(text):
        header = _HEADER.match(line)
        key = _KEY.match(line)
        if header is not None:
            table = header[2]
            number = counts.get(table, 0) if header[1] == "[[" else 0
            counts[table] = number + 1
            found.setdefault((table, number, ""), line_number)
        elif key is not None:
            name = next(part for part in key.groups() if part is not None)
            found.setdefault((table, number, name), line_number)
    return found


def _outside_of_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that do not begin within a multi-line text."""
    within: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        begins_within = within is not None
        rest = line
        while True:
            if within is None:
                starts = [(rest.find(quote), quote) for quote in _QUOTES if quote in rest]
                if not starts:
                    break
                at, within = min(starts)
                rest = rest[at + 3 :]
            elif within in rest:
                rest = rest[rest.index(within) + 3 :]
                within = None
            else:
                break
        if not begins_within:
            yield number, line
