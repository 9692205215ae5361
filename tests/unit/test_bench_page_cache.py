"""Rows of the hot window, and what they find in the page cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benches.e2e import hot_window, page_cache
from benches.e2e.page_cache import resident_bytes

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
