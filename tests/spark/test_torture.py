"""kill -9 of driver, workers, brokers and name server at random points: none lost, none twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyrmq import Admin, arrow
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.faults]
ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("PYRMQ_TORTURE_ROUNDS", "20"))
SEED = int(os.environ.get("PYRMQ_TORTURE_SEED", str(time.time_ns() % 100_000)))
ROWS = 2000


def driver(running: Cluster, folder: Path, delivery: str) -> subprocess.Popen[str]:
    """Start a driver in a group of its own: the JVM and its workers end with it."""
    arguments = [running.name_server, "Source", "Target", str(folder), delivery]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.torture_driver", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'python'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def kill_group(process: subprocess.Popen[str]) -> None:
    """End a driver, its JVM and its workers, whatever of them is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def kill_workers(driver: subprocess.Popen[str]) -> None:
    """End the Python processes of an executor: the query fails, or its tasks run again."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == driver.pid:
            continue
        with contextlib.suppress(OSError):
            pid = int(entry.name)
            is_python = b"python" in (entry / "cmdline").read_bytes().split(b"\0")[0]
            if is_python and os.getsid(pid) == driver.pid:
                os.kill(pid, signal.SIGKILL)


def in_files(folder: Path) -> list[str]:
    """Read the bodies of the files that Spark has committed; killed tasks leave others."""
    import pyarrow.parquet as pq

    committed: set[str] = set()
    for log in (folder / "_spark_metadata").iterdir():
        if log.name.removesuffix(".compact").isdecimal():
            lines = log.read_text().splitlines()[1:]
            committed |= {json.loads(line)["path"] for line in lines}
    found: list[str] = []
    for path in committed:
        column = pq.read_table(path.removeprefix("file://")).column("body")
        found += [body.decode() for body in column.to_pylist()]
    return found


def one_round(
    running: Cluster, folder: Path, delivery: str, chance: random.Random, *, may_end: bool
) -> None:
    """Run a driver, kill something after its first batch is planned, and mostly the driver too."""
    process = driver(running, folder, delivery)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "planned\n"
        time.sleep(chance.uniform(0, 4))
        if chance.random() < 0.3:
            broker = chance.choice(running.brokers)
            broker.kill()
            time.sleep(chance.uniform(0, 2))
            broker.start()
        if chance.random() < 0.3:
            names = running.name_servers[0]
            names.kill()
            time.sleep(chance.uniform(0, 2))
            names.start()
        if chance.random() < 0.3:
            kill_workers(process)
            time.sleep(chance.uniform(0, 2))
        if may_end and chance.random() < 0.2:
            process.wait(900)
    finally:
        kill_group(process)


def torture(folder: Path, delivery: str, rounds: int) -> None:
    """Send, run and kill, round by round; run to the end, and compare."""
    sys.stdout.write(f"seed {SEED}, {rounds} rounds\n")
    chance = random.Random(SEED)
    sent: list[str] = []
    with cluster(brokers=2, processes=True, flush_disk_type="SYNC_FLUSH") as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("Source", queues=2)
            admin.create_topic("Target", queues=2)
        time.sleep(1)
        for number in range(rounds):
            # Some rows are equal, which is not the same as twice.
            texts = [f"{number}-{row % 1900}" for row in range(ROWS)]
            arrow.send(pa.table({"body": texts}), "Source", name_server=running.name_server)
            sent += texts
            one_round(running, folder, delivery, chance, may_end=rounds > 1)
        last = driver(running, folder, delivery)
        try:
            assert last.wait(900) == 0
        finally:
            kill_group(last)
        if delivery == "parquet":
            found = Counter(in_files(folder / "rows"))
        else:
            table = arrow.read("Target", name_server=running.name_server, columns=["body"])
            found = Counter(body.decode() for body in table.column("body").to_pylist())
    lost, twice = Counter(sent) - found, found - Counter(sent)
    sys.stdout.write(f"{delivery}: {len(sent)} rows, {lost.total()} lost, {twice.total()} twice\n")
    assert not lost
    if delivery != "at-least-once":
        assert not twice


@pytest.mark.timeout(240)
def test_a_pipeline_that_is_killed_once(tmp_path: Path) -> None:
    torture(tmp_path, "exactly-once", 1)


@pytest.mark.nightly
@pytest.mark.timeout(3500)
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once", "parquet"])
def test_a_pipeline_that_is_killed_again_and_again(tmp_path: Path, delivery: str) -> None:
    torture(tmp_path, delivery, ROUNDS)
