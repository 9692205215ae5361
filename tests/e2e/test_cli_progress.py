"""The progress of long commands: one line of the terminal, which is wiped at the end."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.snapshots import KIB, OPTIONS, last_object
from tests.e2e.terminals import WIPE, on_a_terminal, standard_error, steps

from pyrmq import Admin, Producer
from pyrmq.cli import main
from pyrmq.cli.log import progress
from pyrmq.cli.output import columns_of
from pyrmq.cli.pipeline import _batch_printer
from pyrmq.spark.progress.figures import BatchFigures, Lag
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

MEMORY = Path("/dev/shm")


def test_an_export_and_an_import_count_their_messages(shared: Cluster, tmp_path: Path) -> None:
    address, count, file = shared.name_server, 300, tmp_path / "rows.parquet"
    with Admin(name_server=address) as admin:
        for topic in ("exported", "imported"):
            admin.create_topic(topic, queues=2)
    with Producer(name_server=address) as producer:
        for _ in range(3):
            producer.send_batch("exported", [b"tea"] * (count // 3))
    for done, words in (
        ("exported", ("export", "exported", str(file))),
        ("sent", ("import", str(file), "imported")),
    ):
        shown = on_a_terminal(*words, "-n", address, columns=40)
        found = [int(step.removesuffix(" messages")) for step in steps(shown)]
        assert found == sorted(found)
        assert found[-1] == count
        assert shown.rpartition(WIPE)[2] == f"{done} {count} messages\r\n"


def test_an_export_that_fails_wipes_its_progress(
    shared: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = shared.name_server
    with Producer(name_server=address) as producer:
        producer.send("half-exported", b"tea")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with standard_error(40) as terminal:
        assert main(["export", "half-exported", str(tmp_path / "a.csv"), "-n", address]) == 1
    assert steps(terminal.shown) == ["1 message"]
    assert terminal.shown.rpartition(WIPE)[2].startswith("error: [Errno 28] No space left")


def test_a_snapshot_on_another_file_system_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not MEMORY.is_dir() or MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs two file systems")
    # Each piece shows a step, however quick the copy is.
    monkeypatch.setattr(progress, "_EACH", 0.0)
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as elsewhere,
        cluster(store=tmp_path, **OPTIONS) as running,  # type: ignore[arg-type]
    ):
        with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
            for number in range(160):
                producer.send("orders", f"{number} " + "x" * 8 * KIB)
        words = ["store", "snapshot", str(running.store)]
        with standard_error(40) as terminal:
            assert main([*words, os.path.join(elsewhere, "kept"), "--json"]) == 0  # noqa: PTH118
        made = last_object(capsys)
        assert (made["linked_bytes"], made["copied_bytes"]) == (0, made["position"])
    found = steps(terminal.shown)
    assert all(columns_of(step) < 40 for step in found)
    shares = [float(re.fullmatch(r" *([\d.]+) %  \[#* *\].*", step)[1]) for step in found]  # type: ignore[index]
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 50 < shares[-1] <= 100
    assert terminal.shown.endswith(WIPE)


def test_a_batch_of_a_pipeline_stands_in_one_line() -> None:
    batches = [
        BatchFigures(
            query="orders",
            batch=number,
            rows=1000,
            rows_per_second=900.0,
            seconds=1.2,
            lag=Lag(rows=0),
        )
        for number in (1, 2)
    ]
    for columns in (40, 200):
        with standard_error(columns) as terminal:
            show = _batch_printer(as_json=False)
            for figures in batches:
                show(figures)
        assert terminal.shown == "".join(f"{WIPE}{str(one)[: columns - 1]}" for one in batches)
