"""The rows that the documentation names are rows of the programs that measure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benches.e2e.__main__ import KNOWN, QUICK
from benches.e2e.breadth import ROWS, breadth_rows
from benches.e2e.rivals import latency
from benches.e2e.rivals.load import LOADS
from benches.e2e.rivals.plans import MEMORY_PLANS, PLANS, SECURITY_PLANS
from benches.e2e.snapshot import snapshot_rows
from benches.e2e.store import PARTS
from benches.open_loop import OpenLoop, is_available
from benches.turns import ROWS as TURNS

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benches/README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
STORE = (ROOT / "crates/store/examples/store_bench/main.rs").read_text()
COMMAND = re.compile(r"(benches\.e2e|benches\.turns|store_bench)\b[^`]*?--rows ([a-z0-9_,-]+)")
MAKE = re.compile(r"\bROW=([a-z0-9_,-]+)")


def named() -> list[tuple[str, str, str]]:
    """Return page, program and row of each place that names one."""
    found: list[tuple[str, str, str]] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        places = [*COMMAND.findall(text), *(("benches.e2e", rows) for rows in MAKE.findall(text))]
        for program, rows in places:
            found += [(page.name, program, row) for row in rows.split(",")]
    return found


@pytest.mark.parametrize(("page", "program", "row"), sorted(set(named())))
def test_a_row_that_a_page_names_can_be_measured(page: str, program: str, row: str) -> None:
    if program == "store_bench":
        assert f'"{row}"' in STORE, page
    else:
        assert row in (KNOWN if program == "benches.e2e" else TURNS), page


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_store_is_a_row_of_its_program(part: str) -> None:
    assert f'("{part}", ' in STORE


def test_the_loads_of_every_plan_exist() -> None:
    for plan in (*PLANS, *MEMORY_PLANS, *SECURITY_PLANS):
        for load in (plan.our_load, plan.rival_load):
            assert load in LOADS or load.startswith("java "), plan.name


def test_a_load_that_reports_its_memory_imports_nothing_of_the_rows() -> None:
    code = "import sys, benches.e2e.consumers.loads; print(*sys.modules)"
    imported = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split()
    own = {"benches", "benches.e2e", "benches.usage"}
    own |= {"benches.e2e.consumers", "benches.e2e.consumers.loads"}
    assert {name for name in imported if name.startswith(("benches", "tests", "pyrmq"))} == own


@pytest.mark.parametrize("size", [16 * 1024, 256 * 1024])
def test_large_bodies_are_sent_as_they_are(rocketmq: Cluster, size: int) -> None:
    (wall, _), _ = LOADS["pyrmq produce plain"](rocketmq.name_server, 20, b"x" * size)
    assert wall > 0
    log = rocketmq.broker.health()["store"]
    assert log["max_physical_offset"] - log["min_physical_offset"] > 20 * size


@pytest.mark.parametrize("load", ["pyrmq latency", "pyrmq pop latency"])
def test_a_load_of_latency_measures_each_message_and_not_the_one_before_them(
    rocketmq: Cluster, monkeypatch: pytest.MonkeyPatch, load: str
) -> None:
    monkeypatch.setattr(latency, "LATENCIES", 20)
    _, turn = LOADS[load](rocketmq.name_server, 0, b"x" * 128)
    assert isinstance(turn, OpenLoop)
    assert len(turn.took) == len(turn.late) == 20
    # That one has no time: its age would be that of the clock.
    assert 0 < max(turn.took) < 30


@pytest.mark.skipif(not is_available(), reason="hdrhistogram is of the extra `bench`")
def test_sends_beside_snapshots_run_on_a_small_scale() -> None:
    sends, command = snapshot_rows(1, 0.02)
    assert sends.figures.keys() == sends.latencies.keys() == {"alone", "ours"}
    assert min(command.figures["ours"]) > 0


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_many_run_on_a_small_scale(name: str) -> None:
    for row in breadth_rows({name}, 1, 0.02):
        assert len(row.figures["ours"]) == 1
        assert row.ratio() is None or row.figures["ours"][0] > 0


def test_quick_has_a_row_of_each_area() -> None:
    quick = QUICK.split(",")
    assert set(quick) <= set(KNOWN)
    for area in (
        {"nameserver-routes"},
        {"store-append"},
        {"codec"},
        {"produce", "lone"},
        {"objects"},
        {"pop"},
        {"signed-produce"},
        {"spark-batch"},
    ):
        assert area & set(quick)


def test_no_row_is_known_twice() -> None:
    assert sorted(KNOWN) == sorted(set(KNOWN))
