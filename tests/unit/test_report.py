"""What `benches.report` makes of results files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from benches import report
from benches.results import FORMAT, ResultsError, load
from benches.row import Row

if TYPE_CHECKING:
    from pathlib import Path


def row(name: str, ours: list[float], theirs: list[float], *, less: bool = False) -> Row:
    return Row(
        name=name,
        what=name,
        unit="µs" if less else "msg/s",
        target="",
        rival="kafka",
        figures={"ours": ours, "kafka": theirs},
        less_is_more=less,
    )


def saved(path: Path, *rows: Row, **more: object) -> Path:
    raw = {"format": FORMAT, "rows": [vars(one) | {"ratio": one.ratio()} for one in rows], **more}
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


def test_the_tables_of_the_documentation_are_those_of_the_figures() -> None:
    if not report.RELEASE.exists():
        assert not any(report.PART.search(page.read_text()) for page in report.PAGES)
        pytest.skip("no figures are released")
    assert report.write_docs(check=True) == 0


def test_a_table_has_the_ratio_of_the_medians_and_its_range(tmp_path: Path) -> None:
    rows = load(
        saved(tmp_path / "a.json", row("produce", [200_000, 100_000, 300_000], [100_000] * 3))
    )
    text = report.filled("x\n<!-- figures: produce -->\nold\n<!-- /figures -->\ny", rows)
    assert "old" not in text
    assert "| produce | 200,000 msg/s | 100,000 msg/s | **2.00** (1.00 to 3.00) |" in text
    assert report.filled(text, rows) == text


def test_a_row_that_was_not_measured_is_named_with_its_neighbour(tmp_path: Path) -> None:
    rows = load(saved(tmp_path / "a.json", row("produce", [1], [1])))
    with pytest.raises(
        ResultsError, match=r"no row produces1 was measured; did you mean produce\?"
    ):
        report.table(["produces1"], rows)


@pytest.mark.parametrize(
    ("before", "after", "less", "expected"),
    [
        ([100, 101, 99, 100, 102], [100, 99, 101, 103, 98], False, "noise"),
        ([100, 101, 99, 100, 102], [150, 149, 151, 150, 152], False, "better"),
        ([100, 101, 99, 100, 102], [150, 149, 151, 150, 152], True, "worse"),
        ([100, 101, 99, 100, 102], [60, 61, 59, 62, 60], False, "worse"),
        ([100, 20, 180, 60, 140], [130, 50, 210, 90, 100], False, "noise"),
    ],
)
def test_a_verdict_needs_more_than_noise(
    tmp_path: Path,
    before: list[float],
    after: list[float],
    less: bool,  # noqa: FBT001 - pytest passes it by name
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = saved(tmp_path / "old.json", row("lone", before, [1], less=less))
    new = saved(tmp_path / "new.json", row("lone", after, [1], less=less), note="ignored")
    status = report.main(["compare", str(old), str(new)])
    assert status == (1 if expected == "worse" else 0)
    assert capsys.readouterr().out.rstrip().endswith(f"| {expected} |")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no JSON"),
        ("[]", "is no results file"),
        ('{"rows": [], "format": 1}', "has format 1, this program reads"),
        (None, "No such file"),
    ],
)
def test_other_files_are_refused_with_the_reason(
    tmp_path: Path, text: str | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)
    assert report.main(["compare", str(path), str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_files_without_a_common_row_are_no_success(tmp_path: Path) -> None:
    one = saved(tmp_path / "one.json", row("a", [1], [1]))
    other = saved(tmp_path / "other.json", row("b", [1], [1]))
    assert report.main(["compare", str(one), str(other)]) == 2
