"""Flame graphs as SVG, from what `perf script` prints.

A frame's width is its share of the samples. Move over a frame to read its name and share.
"""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WIDTH, HEIGHT, LETTER = 1400, 17, 6.6
# Frames narrower than this, in pixels, cannot be seen.
MIN_WIDTH = 0.3
HEAD = re.compile(r"^(?P<thread>\S.*?)\s+\d+(?:/\d+)?\s+(?:\[\d+\]\s+)?[\d.]+:")
FRAME = re.compile(r"^\s+[0-9a-f]+ (?P<name>.*?)(?:\+0x[0-9a-f]+)? \((?P<file>[^()]*)\)$")
HASH = re.compile(r"::h[0-9a-f]{16}$")
COPIES = re.compile(r"mem(cpy|move)|copy_(to|from|user|page)|_copy|rep_movs")


class Samples(NamedTuple):
    """Samples of a process.

    Attributes:
        stacks: frames from the thread's name to the innermost function, and how often.
        unnamed: samples with a function that has no name: a program of theirs has no symbols.
        copying: samples inside a function that copies memory.
    """

    stacks: Mapping[tuple[str, ...], int]
    unnamed: int
    copying: int

    @property
    def total(self) -> int:
        """All samples."""
        return sum(self.stacks.values())


def folded(lines: Iterable[str]) -> Samples:
    """Count the stacks in the output of `perf script -F comm,tid,time,ip,sym,dso`."""
    stacks: Counter[tuple[str, ...]] = Counter()
    unnamed = copying = 0
    for thread, frames in _samples(lines):
        if frames:
            unnamed += any(name.startswith("[") for name in frames)
            copying += COPIES.search(frames[0]) is not None
        stacks[thread, *reversed(frames)] += 1
    return Samples(stacks, unnamed, copying)


def _samples(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield thread and frames, innermost first."""
    thread, frames = "", list[str]()
    for line in lines:
        head, frame = HEAD.match(line), FRAME.match(line.rstrip())
        if head:
            thread, frames = head["thread"], []
        elif frame:
            name = HASH.sub("", frame["name"])
            unknown = name in {"", "[unknown]"}
            file = frame["file"].rpartition("/")[2].strip("[]")
            frames.append(f"[{file}]" if unknown else name)
        elif not line.strip() and thread:
            yield thread, frames
            thread, frames = "", []
    if thread:
        yield thread, frames


class _Node:
    def __init__(self) -> None:
        self.count = 0
        self.below: dict[str, _Node] = {}


def svg(title: str, samples: Samples) -> str:
    """Draw the stacks, the threads at the bottom."""
    root = _Node()
    deepest = 0
    for stack, count in samples.stacks.items():
        root.count += count
        node = root
        for name in stack:
            node = node.below.setdefault(name, _Node())
            node.count += count
        deepest = max(deepest, len(stack))
    height = (deepest + 3) * HEIGHT
    shapes = list(_shapes(root, height - HEIGHT))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="8" y="16" font-size="14">{escape(title)}</text>',
            *shapes,
            "</svg>\n",
        ]
    )


def _shapes(root: _Node, bottom: int) -> Iterator[str]:
    scale = WIDTH / max(root.count, 1)
    waiting = [(root, 0.0, 0)]
    while waiting:
        node, left, level = waiting.pop()
        for name in sorted(node.below):
            below = node.below[name]
            width = below.count * scale
            if width >= MIN_WIDTH:
                yield _shape(name, below.count / root.count, left, width, bottom - level * HEIGHT)
                waiting.append((below, left, level + 1))
            left += width


def _shape(name: str, share: float, left: float, width: float, bottom: int) -> str:
    # Every name always has its colour, so that two pictures can be compared.
    tone = sum(name.encode()) % 60
    letters = int(width / LETTER)
    text = name if len(name) <= letters else name[: letters - 1] + "…"
    shown = ""
    if letters > 2:
        place = f'x="{left + 2:.1f}" y="{bottom - 4}"'
        shown = f"<text {place}>{escape(text)}</text>"
    return (
        f"<g><title>{escape(name)}: {share:.1%}</title>"
        f'<rect x="{left:.1f}" y="{bottom - HEIGHT + 1}" width="{width:.1f}" height="{HEIGHT - 1}" '
        f'fill="rgb(240,{150 + tone},90)"/>{shown}</g>'
    )
