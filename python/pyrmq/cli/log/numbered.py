"""Files of a store that are named by the position of their first byte."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_DIGITS = 20


def numbered(directory: Path) -> list[tuple[int, Path]]:
    """The files that are named by the position of their first byte, in order.

    Raises:
        ConfigError: Something that is not a file has such a name. Skipping it would make its data
            seem deleted; opening a pipe would wait.
    """
    found = []
    try:
        entries = os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    with entries:
        for entry in entries:
            if len(entry.name) != _DIGITS or not entry.name.isdigit():
                continue
            if not entry.is_file():
                _refuse_other(entry)
                continue
            found.append((int(entry.name), directory / entry.name))
    return sorted(found)


def _refuse_other(entry: os.DirEntry[str]) -> None:
    """Refuse anything but a file, unless it was deleted meanwhile."""
    if not os.path.lexists(entry.path):
        return
    what = "a directory" if entry.is_dir() else "not a regular file"
    raise ConfigError(
        f"{entry.path} is {what}, where a file of the store should be: move it away; if the file "
        "is elsewhere, put it back"
    )
