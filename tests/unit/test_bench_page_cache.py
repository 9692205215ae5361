"""What rows of the page cache do to it, and what they find in it."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import pytest
from benches.e2e import hot_window, page_cache, rivals
from benches.e2e.page_cache import resident_bytes
from benches.e2e.rivals.plans import MEMORY_PLANS, Plan
from benches.row import Row

from tests.unit.bench_match import match_of, record_loads

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_written_is_in_the_page_cache_and_a_hole_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(10 << 20)
    assert resident_bytes(tmp_path) == 0
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "written").write_bytes(bytes(1 << 20))
    assert resident_bytes(tmp_path) == 1 << 20


def can_be_evicted(directory: Path) -> bool:
    """Whether files here leave the page cache: those of a file system in memory do not."""
    path = directory / "evicted"
    path.write_bytes(bytes(1 << 20))
    page_cache.evict([path])
    is_gone = resident_bytes(directory) == 0
    path.unlink()
    return is_gone


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in hot_window.ROWS if name != "hot-cold"])
def test_rows_of_the_hot_window_run_on_a_small_scale(name: str, tmp_path: Path) -> None:
    """`hot-cold` needs a program that `cargo` builds."""
    if name == "hot-drain" and not can_be_evicted(tmp_path):
        pytest.skip("the temporary directory is in memory")
    measured = list(hot_window.hot_window_rows({name}, 1, 0.02))
    assert measured[0].name == name
    for row in measured:
        assert row.ratio() is not None
        assert all(len(figures) == 1 for figures in row.figures.values())
    if name == "hot-resident":
        kept = measured[0].figures
        assert kept["ours"][0] < kept["without"][0]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Do not sync the machine's disks; return a list that grows in place of that."""
    calls: list[int] = []
    monkeypatch.setattr(os, "sync", lambda: calls.append(1))
    return calls


@pytest.mark.parametrize("name", ["produce-fresh", "produce-held"])
def test_memory_is_brought_into_its_state_before_each_turn(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match = match_of("ours", "kafka", rounds=1, scale=0.001)
    did: list[object] = []
    record_loads(did, monkeypatch)
    monkeypatch.setattr(rivals, "warm", lambda *_: True)
    monkeypatch.setattr(rivals, "make_fresh", lambda: did.append("fresh"))
    monkeypatch.setattr(rivals, "make_held", did.append)
    row = match.play(next(plan for plan in MEMORY_PLANS if plan.name == name))
    state = "fresh" if name == "produce-fresh" else 5000 * (128 + rivals.MESSAGE_HEAD)
    assert did == [state, "pyrmq produce", state, "confluent produce"]
    assert row.memory == name.removeprefix("produce-")


def test_fresh_memory_needs_the_right_to_empty_the_page_cache(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Match:
        servers = dict.fromkeys(("ours", "kafka"))

        def __init__(self, *_: object) -> None:
            pass

        def play(self, plan: Plan) -> Row:
            return Row(name=plan.name, what="", unit="", target="", figures={"ours": [1.0]})

    monkeypatch.setattr(rivals, "Match", Match)
    monkeypatch.setattr(rivals, "find_spec", lambda _: True)
    monkeypatch.setattr(rivals, "can_be_fresh", lambda: False)
    names = {"produce-fresh", "produce-held"}
    assert [row.name for row in rivals.rival_rows(1, 1.0, names, MEMORY_PLANS)] == ["produce-held"]
    assert "only root empties" in capsys.readouterr().err


def test_fresh_memory_is_written_out_and_dropped(tmp_path: Path, synced: list[int]) -> None:
    drop = tmp_path / "drop_caches"
    page_cache.make_fresh(drop, 0.0)
    assert drop.read_text() == "1"
    assert synced == [1]


def test_memory_is_held_by_a_file_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[int]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    page_cache.make_held(3 * page_cache.BLOCK)
    assert list(tmp_path.iterdir()) == []
    assert synced == [1]
