"""Servers whose system clock jumps by a day, both ways, during and between runs."""

from __future__ import annotations

import shutil
import struct
import subprocess
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DAY_S = 86_400

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
        pytest.skip("no C compiler to build the clock with")
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


@pytest.mark.timeout(90)
def test_a_clock_that_jumps_a_day_loses_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        clock_of_the_servers(tmp_path, monkeypatch) as move,
        cluster(brokers=2, processes=True) as rocketmq,
    ):
        monkeypatch.delenv("LD_PRELOAD")  # The clients keep the real time.
        sent: set[bytes] = set()
        received: set[bytes] = set()
        address = rocketmq.name_server
        with Admin(name_server=address) as admin:
            admin.create_topic("jumps", queues=4)
        with (
            Producer(name_server=address, group="clock", send_timeout=5.0) as producer,
            PullConsumer(name_server=address, group="watch", start="first") as consumer,
        ):
            consumer.subscribe("jumps")

            def exchange(step: str, *, delay_level: int = 0) -> float:
                """Send, receive everything, and return when the brokers stored the last message."""
                stored = 0.0
                for number in range(40):
                    body = f"{step} {number}".encode()
                    producer.send("jumps", body, delay_level=delay_level if number == 0 else 0)
                    sent.add(body)
                while not received >= sent:
                    for message in consumer.poll(timeout=0.5):
                        received.add(message.body)
                        stored = max(stored, message.store_timestamp / 1000)
                return stored

            exchange("before")
            for step, seconds in (("tomorrow", DAY_S), ("yesterday", -DAY_S), ("today", 0)):
                move(seconds)
                stored = exchange(step, delay_level=1)
                assert stored == pytest.approx(time() + seconds, abs=60)
            # Each start finds a store that was written with the clock a day ahead.
            move(DAY_S)
            exchange("a day later")
            for end in ("kill", "stop"):
                for broker in rocketmq.brokers:
                    getattr(broker, end)()
                move(0)
                for broker in rocketmq.brokers:
                    broker.start()
                exchange(f"after {end}")
                move(DAY_S)
                exchange(f"a day after {end}")
        with PullConsumer(name_server=address, group="again", start="first") as reader:
            reader.subscribe("jumps")
            again: set[bytes] = set()
            while not again >= sent:
                again.update(message.body for message in reader.poll(timeout=0.5))
        assert again == sent
