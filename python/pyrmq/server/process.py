"""The memory of this process and its limit, and the file system of a directory (Linux)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["file_system", "memory"]

_CGROUP = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 62
"""Without a limit, version 1 of the interface shows a little less than 2**63."""


def memory() -> dict[str, int | None]:
    """This process's resident memory, and its container's limit if there is one, in bytes.

    Example:
        >>> memory()["resident_bytes"] > 0
        True
    """
    return {"resident_bytes": _resident(), "limit_bytes": _limit()}


def _resident() -> int | None:
    for line in _text(Path("/proc/self/status")).splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return None


def _limit() -> int | None:
    """The lowest limit from this process's control group up to the root."""
    limits: list[int] = []
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, own = line.split(":", 2)
        base, file = {
            "": (_CGROUP, "memory.max"),
            "memory": (_CGROUP / "memory", "memory.limit_in_bytes"),
        }.get(controllers, (None, ""))
        if base is None:
            continue
        group = base / own.lstrip("/")
        texts = [_text(one / file).strip() for one in (group, *group.parents)]
        limits += [int(text) for text in texts if text.isdigit()]
    least = min(limits, default=_NO_LIMIT)
    return None if least >= _NO_LIMIT else least


def file_system(directory: Path) -> str | None:
    """The type of a directory's file system, such as `ext4`; None if unknown.

    Example:
        >>> file_system(Path("/proc"))
        'proc'
    """
    here = directory.resolve()
    best: tuple[int, str] | None = None
    for line in _text(Path("/proc/self/mounts")).splitlines():
        _, at, kind, *_ = line.split(" ")
        # The table writes a blank as \\040.
        where = Path(at.replace("\\040", " "))
        # A later mount at the same directory hides an earlier one.
        if here.is_relative_to(where) and (best is None or len(where.parts) >= best[0]):
            best = (len(where.parts), kind)
    return None if best is None else best[1]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
