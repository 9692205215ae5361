"""All verbs of the command line, as its parsers have them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyrmq.cli.completion import whole
from pyrmq.cli.main import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["verbs"]


def verbs() -> list[str]:
    """Return the words of each verb, such as `group lag`, and of each command without verbs.

    `pyrmq broker` runs a broker and has verbs, so it is one of them.
    """
    return [words for words in _below("", whole(VERBS)) if words]


def _below(words: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    commands = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not any(one.required for one in commands):
        yield words
    for one in commands:
        for word, verb in one.choices.items():
            yield from _below(f"{words} {word}".strip(), verb)
