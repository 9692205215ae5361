"""Small configuration files: after a crash either the old or the new one exists, never half.

As in Apache, the old file stays as `.bak`; reading falls back to it with a warning.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_BACKUP = ".bak"


def expanded(path: str) -> str:
    """The path with the home directory in place of ``~``."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib's import costs more than the start


def write_synced(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file: written under another name, synced, renamed, the directory synced.

    Raises:
        OSError: it cannot be written; the old file is still there.

    Example:
        >>> write_synced("kvConfig.json", b"{}")  # doctest: +SKIP
    """
    # Imported on demand, to keep a server's start short: it only reads.
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
        # A second name instead of a move, so that the file exists at every moment.
        os.link(path, backup)
        backup.replace(path.with_name(path.name + _BACKUP))
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_or_backup(path: str | os.PathLike[str], parse: Callable[[bytes], T]) -> T | None:
    """Read a file, or its backup if it is missing, empty or broken; None if there is neither.

    Raises:
        ConfigError: neither can be read; a start without them would lose their content.

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
            logger.warning("%s; the backup `%s` is used instead", reason, candidate)
        return value
    if broken:
        raise ConfigError(
            f"cannot read {', nor its backup '.join(broken)}; repair it, or move it away to start "
            "without its content"
        )
    return None
