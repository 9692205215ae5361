"""Long rows: two brokers that send in alternating turns."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from benches.e2e import sustained

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.slow
def test_two_brokers_of_ours_send_in_turns_and_the_second_half_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sustained, "SPARE", 0)
    (row,) = sustained.sustained_rows({"hot-produce"}, 2, 0.001, seconds=400, limit=10**9)
    assert {side: len(figures) for side, figures in row.figures.items()} == {
        "ours": 2,
        "without": 2,
    }
    turns = re.findall(r"turn (\d) of 4, (\w+):", capsys.readouterr().err)
    assert turns == [(str(turn), side) for turn in range(1, 5) for side in ("ours", "without")]
    assert row.server_mib.keys() == row.client_us.keys() == {"ours", "without"}


def test_long_rows_need_space_for_both_sides() -> None:
    with pytest.raises(SystemExit, match="give a smaller --keep, or set TMPDIR"):
        sustained.check_space(10**18)


def test_a_long_row_whose_rival_is_missing_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sustained, "find_spec", lambda _: None)
    monkeypatch.setattr(sustained, "SPARE", 0)

    @contextmanager
    def ours(**_: object) -> Iterator[tuple[None, float]]:
        yield None, 1.0

    monkeypatch.setattr(sustained, "ours", ours)
    assert list(sustained.sustained_rows({"sustained"}, 1, 0.001, seconds=1, limit=1)) == []
    assert "not available: produce, 128 B" in capsys.readouterr().err
