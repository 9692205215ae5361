"""What a Spark worker holds while it reads much more than it could keep."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Self

import pytest

pytest.importorskip("pyspark")

from pyrmq import Admin, Producer
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1200)]
MIB = 1 << 20
BODY = 64 * 1024
READ_MIB = int(os.environ.get("PYRMQ_READ_MIB", str(5 * 1024)))
MAX_MIB = 64
"""Above what the same workers held after a small read."""
PAUSE_S = 0.1


class Sampler:
    """The largest resident memory of this process's Spark workers, in MiB, again and again."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_S):
            found = resident()
            if found:
                self.samples.append(max(found))


def resident() -> list[float]:
    """Return the resident memory of each Python worker below this process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        pid = int(entry.name)
        try:
            parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            names[pid] = (entry / "cmdline").read_text()
        except (OSError, IndexError):
            parents.pop(pid, None)
    found = []
    for pid, name in names.items():
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        is_worker = ".daemon" in name and ".daemon" in names.get(parents[pid], "")
        if above == os.getpid() and is_worker:
            try:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
            found.append(pages * os.sysconf("SC_PAGE_SIZE") / MIB)
    return found


def test_a_worker_stays_small_over_a_large_read(spark: SparkSession) -> None:
    count = READ_MIB * MIB // BODY
    with cluster() as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("Large", queues=4)
        body = os.urandom(BODY)
        with Producer(name_server=running.name_server) as producer:
            for first in range(0, count, 32):
                producer.send_batch("Large", [body] * min(32, count - first))

        def read(most: int) -> DataFrame:
            reader = spark.read.format("rocketmq").option("nameServer", running.name_server)
            return reader.option("limit", str(most)).option("columns", "body").load("Large")

        read(100).write.format("noop").mode("overwrite").save()
        idle = max(resident())
        begun = time.monotonic()
        with Sampler() as sampler:
            whole = spark.read.format("rocketmq").option("nameServer", running.name_server)
            sizes = whole.load("Large").selectExpr("sum(length(body)) AS bytes", "count(*) AS rows")
            (row,) = sizes.collect()
        seconds = time.monotonic() - begun
    assert (row.bytes, row.rows) == (count * BODY, count)
    peak = max(sampler.samples)
    sys.stdout.write(
        f"{READ_MIB} MiB in {seconds:.1f} s; a worker held {idle:.0f} MiB idle,"
        f" {peak:.0f} at most\n"
    )
    third = max(1, len(sampler.samples) // 3)
    assert peak - idle <= MAX_MIB
    assert mean(sampler.samples[-third:]) - mean(sampler.samples[third : 2 * third]) <= 16
