"""A system clock that a test moves, for servers in processes of their own."""

from __future__ import annotations

import shutil
import struct
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.e2e.ci import skip_outside_ci

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

# Adds the number of seconds in a file to the time of day. The monotonic clock is unchanged, as on a
# real machine.
SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
    int file = open(getenv("PYRMQ_TEST_CLOCK"), O_RDONLY);
    offset = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += *offset;
    return done;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    now->tv_sec = real.tv_sec;
    now->tv_usec = real.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    if (now) *now = real.tv_sec;
    return real.tv_sec;
}
"""


@contextmanager
def clock_of_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], None]]:
    """Yield a function that moves the clock of servers started in the block."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        skip_outside_ci("no C compiler to build the clock with")
    source, library, file = (tmp_path / name for name in ("clock.c", "clock.so", "offset"))
    source.write_text(SHIM)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)],
        check=True,
        timeout=60,
    )

    def move(seconds: int) -> None:
        with file.open("r+b" if file.exists() else "wb") as out:
            out.write(struct.pack("<q", seconds))

    move(0)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("PYRMQ_TEST_CLOCK", str(file))
    yield move
