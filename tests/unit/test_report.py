"""What `benches.report` makes of results files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from benches import plots, report
from benches.results import FORMAT, ResultsError, load, machine, save
from benches.row import Row

if TYPE_CHECKING:
    from pathlib import Path


SUMMARY = {
    **{f"{prefix}{name}": 1.5 for prefix in ("", "late_") for name in ("p50", "p99", "p999")},
    "histogram": "HISTFAAA",
    "late_histogram": "HISTFAAA",
}


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
    raw = {
        "format": FORMAT,
        "taken": "2026-11-23T20:57:49+00:00",
        "commit": "64e3992e",
        "options": {},
        "machine": {"cores": 2},
        "versions": {},
        "rows": [vars(one) | {"ratio": one.ratio()} for one in rows],
        **more,
    }
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


def latency_of(turns: object) -> dict[str, object]:
    return {"rows": [vars(row("a", [1], [2])) | {"latencies": {"ours": turns}}]}


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


def test_the_picture_shows_each_ratio_with_its_range() -> None:
    rows = [
        row("produce <a> & `b`", [200, 100, 300], [100] * 3),
        row("lone", [30, 20, 10], [10, 10, 10], less=True),
        Row(what="nothing beside it", unit="msg/s", target=""),
    ]
    drawn = ElementTree.fromstring(plots.ratios(rows, {"cores": 2, "memory_gib": 24}, "abcdef123"))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "produce <a> & b" in texts
    assert "2.00 (1.00 to 3.00)" in texts
    assert "0.50 (0.33 to 1.00)" in texts
    assert "nothing beside it" not in texts
    assert texts[-1] == "2 cores, 24 GiB, commit abcdef12; the line is the range over the turns"
    bars = [
        float(one.get("width", "0"))
        for one in drawn.iter("{http://www.w3.org/2000/svg}rect")
        if one.get("x") == str(plots.LABELS)
    ]
    assert bars == pytest.approx([2 / 3 * plots.BARS, 0.5 / 3 * plots.BARS], abs=0.1)


def test_a_picture_that_is_not_of_the_figures_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "figures.svg"
    monkeypatch.setattr(report, "PICTURE", picture)
    monkeypatch.setattr(report, "PAGES", ())
    monkeypatch.setattr(report, "RELEASE", saved(tmp_path / "a.json", row("lone", [1], [2])))
    assert report.main(["docs", "--check"]) == 1
    assert "figures.svg: run `python -m benches.report docs`" in capsys.readouterr().err
    assert report.main(["docs"]) == 0
    assert report.main(["docs", "--check"]) == 0
    picture.write_text(picture.read_text().replace("0.50", "0.60"))
    assert report.main(["docs", "--check"]) == 1


def test_what_bench_saves_has_the_form_that_is_read(tmp_path: Path) -> None:
    done = [row("latency", [2, 3], [1, 1], less=True), Row(what="start", unit="ms", target="")]
    done[0].latencies = {"ours": [SUMMARY, SUMMARY], "kafka": [SUMMARY, SUMMARY]}
    done[1].add("ours", 65)
    path = save(done, tmp_path, machine=machine(), options={"rounds": 2, "out": tmp_path})
    read = load(path)
    assert list(read) == ["latency", "start"]
    assert read["latency"].latencies["kafka"] == [SUMMARY, SUMMARY]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"taken": None}, "`taken` is None, not a str"),
        ({"machine": []}, r"`machine` is \[\], not a dict"),
        ({"rows": [5]}, "row 0 is no object"),
        ({"rows": [vars(row("lone", [], [1]))]}, r"row lone: `figures`, ours: \[\] are no figures"),
        ({"rows": [vars(row("lone", [1], [2])) | {"unit": 3}]}, "row lone: `unit` is no text"),
        ({"rows": [vars(row("lone", [1], [2]))] * 2}, "row lone is there twice"),
        ({"rows": [vars(row("a", [1], [2])) | {"cpu_us": [1]}]}, "row a: `cpu_us` is no object"),
        ({"rows": [vars(row("a", [1], [2])) | {"figures": {}}]}, "row a has no figures"),
        (latency_of([]), r"`latencies`, ours: \[\] are no turns"),
        (latency_of([5]), "`latencies`, ours: 5 is no object"),
        (latency_of([SUMMARY | {"p999": "slow"}]), "ours: `p999` is 'slow', not a figure"),
        (latency_of([SUMMARY | {"late_histogram": "x"}]), "ours: `late_histogram` is no histogram"),
    ],
)
def test_a_results_file_with_something_else_in_it_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    with pytest.raises(ResultsError, match=words):
        load(saved(tmp_path / "run.json", **change))


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
    ("change", "words"),
    [
        ({"machine": {"cores": 4}}, "cores 2 and 4"),
        ({"machine": {"cores": 2, "busy": True, "load_at_start": 3.1}}, "was busy"),
        ({"machine": {"cores": 2}, "options": {"scale": 0.1}}, "scale 0.5 and 0.1"),
    ],
)
def test_runs_that_are_not_alike_are_not_comparable_and_no_failure(
    tmp_path: Path, change: dict[str, object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, object] = {"machine": {"cores": 2}, "options": {"scale": 0.5}}
    old = saved(tmp_path / "old.json", row("lone", [100] * 5, [1]), **given)
    new = saved(tmp_path / "new.json", row("lone", [50] * 5, [1]), **{**given, **change})
    assert report.main(["compare", str(old), str(new)]) == 0
    said = capsys.readouterr()
    assert "not comparable: " in said.err
    assert words in said.err
    assert said.out.rstrip().endswith("| worse |")


@pytest.mark.parametrize(
    ("ours", "theirs", "less", "is_worse"),
    [
        ([80, 81, 79], [50, 50, 50], False, True),
        # As much as two runs of one build differ.
        ([93, 94, 95], [50, 50, 50], False, False),
        # A slow hour: the rival is slower as well.
        ([80, 81, 79], [40, 40, 40], False, False),
        ([130, 131, 129], [50, 50, 50], True, True),
        ([80, 81, 79], [50, 50, 50], True, False),
    ],
)
def test_a_row_is_worse_than_released_only_if_its_ratio_is_too(
    ours: list[float],
    theirs: list[float],
    less: bool,  # noqa: FBT001 - pytest passes it by name
    is_worse: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    before = {"lone": row("lone", [100, 101, 99], [50, 50, 50], less=less)}
    after = {"lone": row("lone", ours, theirs, less=less), "new": row("new", [1], [1])}
    assert bool(report.regressions(before, after)) is is_worse


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
