"""The page cache: what of a log it has, how to empty it, and what the disk reads without it."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

DROP = Path("/proc/sys/vm/drop_caches")
GIVEN_BACK_S = 10.0
"""A guest that reports free pages to its host does so some seconds after they became free."""
BLOCK = 1 << 20
_FAILED = ctypes.c_void_p(-1).value
"""What `mmap` returns on failure."""


def log_files(store: Path) -> list[Path]:
    """Return the files of a store's log, the oldest first."""
    return sorted((store / "commitlog").iterdir())


def evict(files: Iterable[Path]) -> None:
    """Remove files from the page cache.

    Once, before a turn: evicting during a turn takes a processor for milliseconds at a time.
    """
    # Pages that are not written yet cannot be evicted.
    os.sync()
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_from_disk(pid: int) -> int:
    """Return the bytes that a process has read from the disk so far."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def read_rate(files: Iterable[Path]) -> float:
    """Read files one after the other; return bytes a second."""
    room, total, began = bytearray(BLOCK), 0, time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(room):
                total += count
    return total / (time.perf_counter() - began)


def resident_bytes(directory: Path) -> int:
    """Return how much of the files below a directory is in the page cache."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):  # it was deleted meanwhile
            if path.is_file():
                total += _resident(path)
    return total


def _resident(path: Path) -> int:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 0
        libc = _libc()
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), f"mmap {path}")
        try:
            pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            if libc.mincore(address, size, pages):
                raise OSError(ctypes.get_errno(), f"mincore {path}")
        finally:
            libc.munmap(address, size)
    # The other bits mean nothing.
    return sum(page & 1 for page in bytes(pages)) * mmap.PAGESIZE


@cache
def _libc() -> Any:  # noqa: ANN401 - functions of C
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def can_be_fresh() -> bool:
    """Return whether this process may empty the page cache: root may."""
    with suppress(OSError), DROP.open("wb"):
        return True
    return False


def make_fresh(drop: Path = DROP, seconds: float = GIVEN_BACK_S) -> None:
    """Empty the page cache and let the host take the memory back.

    What is written next needs pages that the machine must get first.
    """
    os.sync()
    drop.write_text("1", encoding="ascii")
    time.sleep(seconds)


def make_held(size: int) -> None:
    """Write a file of this size and delete it.

    What is written next takes the pages that it has left: the machine holds them, and they are in
    the processor's tables.
    """
    os.sync()
    block = bytes(BLOCK)
    with tempfile.TemporaryFile(prefix="pyrmq-bench-") as file:
        for _ in range(size // BLOCK):
            file.write(block)
