"""Small configuration files, written so that a crash leaves the old or the new one, never half.

As Apache does, the old file stays as `.bak`; reading falls back to it and says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_BACKUP = ".bak"


def write_synced(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file: written beside it, synced, renamed, the directory synced.

    Raises:
        OSError: the machine's fault; the old file is still there.

    Example:
        >>> write_synced("kvConfig.json", b"{}")  # doctest: +SKIP
    """
    # Imported by who writes: at start a server only reads, and its start counts in milliseconds.
    from pathlib import Path

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        backup = path.with_name(path.name + ".bak.tmp")
        backup.unlink(missing_ok=True)
        # A second name, not a move: the file itself is there at every moment.
        os.link(path, backup)
        backup.replace(path.with_name(path.name + _BACKUP))
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_or_backup(path: str | os.PathLike[str], parse: Callable[[bytes], T]) -> T | None:
    """Read a file, or its backup where it is missing, empty or broken; None when there is neither.

    Raises:
        ConfigError: there is something, and none of it can be read: starting without it would
            lose it.

    Example:
        >>> read_or_backup("kvConfig.json", bytes.decode)  # doctest: +SKIP
    """
    broken: list[str] = []
    name = os.fspath(path)
    for candidate in (name, name + _BACKUP):
        try:
            with open(candidate, "rb") as file:  # noqa: PTH123 - see write_synced
                data = file.read()
        except FileNotFoundError:
            continue
        except OSError as error:
            broken.append(f"`{candidate}`: {error.strerror}")
            continue
        if not data.strip():
            continue
        try:
            value = parse(data)
        except ValueError as error:
            broken.append(f"`{candidate}`: {error}")
            continue
        if candidate != name:
            reason = broken[0] if broken else f"`{name}` is missing or empty"
            from pyrmq._client import log

            logger = log.get("pyrmq.server")
            logger.warning("%s; taken instead: the backup `%s`", reason, candidate)
        return value
    if broken:
        raise ConfigError(
            f"cannot read {', nor its backup '.join(broken)}; mend it, or move it away to start "
            "without what it holds"
        )
    return None
