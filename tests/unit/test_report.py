"""What `benches.report` makes of results files."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from benches import plots, report
from benches.open_loop import OpenLoop, is_available
from benches.released import merged, read_release, release_of, write_release
from benches.results import FORMAT, ResultsError, ResultsFile, load, machine, read
from benches.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def released(path: Path, *runs: dict[str, object]) -> Path:
    path.write_text(json.dumps({"format": FORMAT, "runs": runs}), encoding="utf-8")
    return path


def latency_of(turns: object) -> dict[str, object]:
    return {"rows": [vars(row("a", [1], [2])) | {"latencies": {"ours": turns}}]}


def test_the_tables_of_the_documentation_are_those_of_the_figures() -> None:
    assert report.write_docs(check=True) == 0


def test_every_released_row_is_in_a_table() -> None:
    shown = {
        name.strip()
        for page in report.PAGES
        for part in report.PART.finditer(page.read_text(encoding="utf-8"))
        for name in part["rows"].split(",")
    }
    assert shown == read_release(report.RELEASE).rows.keys()


FIGURE = re.compile(r"\d ?(/s|msg/s|[mµun]?s|[KMG]i?B|[KMG]B/s|%)(?![A-Za-z])")
DATED = re.compile(r"\bruns?\s+of\s+20\d\d-\d\d-\d\d\b", re.IGNORECASE)
NOT_MEASURED = "<!-- not measured -->"


def tables_by_hand(text: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before each table that is not generated, and the table."""
    for part in (report.PART, report.LATENCIES, report.RUNS):
        text = part.sub("", text)
    for table in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE):
        before = text[: table.start()].rstrip("\n").rpartition("\n\n")[2]
        yield before, table[0]


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md"])
def test_a_table_of_figures_is_generated_or_has_the_date_of_its_run(name: str) -> None:
    text = (report.ROOT / name).read_text(encoding="utf-8")
    undated = [
        table.partition("\n")[0]
        for before, table in tables_by_hand(text)
        if FIGURE.search(table) and not DATED.search(before) and NOT_MEASURED not in before
    ]
    assert undated == []


def test_a_table_by_hand_without_a_date_is_found() -> None:
    text = "Run of 2026-11-22:\n\n| a |\n|---|\n| 5 ms |\n\nAnd now:\n\n| b |\n|---|\n| 6 ms |\n"
    found = [table for before, table in tables_by_hand(text) if not DATED.search(before)]
    assert found == ["| b |\n|---|\n| 6 ms |\n"]


def test_a_table_has_the_ratio_of_the_medians_its_range_and_its_run(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.json", row("produce", [200_000, 100_000, 300_000], [100_000] * 3))
    release = release_of([read(path)])
    text = report.filled("x\n<!-- figures: produce -->\nold\n<!-- /figures -->\ny", release)
    assert "old" not in text
    assert (
        "| produce | 200,000 msg/s | 100,000 msg/s | **2.00** (1.00 to 3.00) |  | "
        "2026-11-23, 64e3992e |" in text
    )
    assert report.filled(text, release) == text


def test_rows_without_a_rival_show_their_range(tmp_path: Path) -> None:
    rows = [
        Row(name="start", what="ready", unit="s", target="<= 1 s", figures={"ours": [0.02, 0.03]}),
        Row(name="late", what="p99", unit="ms", target="", figures={"ours": [2500.0]}),
    ]
    path = saved(tmp_path / "a.json", *rows, machine={"busy": True, "load_at_start": 3.1})
    release = release_of([read(path)])
    text = report.filled("<!-- figures: start,late -->\n<!-- /figures -->", release)
    assert text.splitlines()[1:-1] == [
        "| what | pyrmq | target | measured |",
        "|---|---|---|---|",
        "| ready | 25 ms (20 to 30) | <= 1 s | 2026-11-23, 64e3992e, load 3.1 |",
        "| p99 | 2.5 s |  | 2026-11-23, 64e3992e, load 3.1 |",
    ]


def test_a_figure_that_was_not_steady_is_marked(tmp_path: Path) -> None:
    one = row("produce", [200], [100])
    one.steady = {"ours": True, "kafka": False}
    path = saved(tmp_path / "a.json", one)
    release = release_of([read(path)])
    text = report.filled("<!-- figures: produce -->\n<!-- /figures -->", release)
    assert "| produce | 200 msg/s | 100 msg/s, not steady | **2.00** (2.00 to 2.00) |" in text
    assert (
        "| produce, not steady | 200 | 200 msg/s |"
        in report.compared(release.rows, release.rows)[0]
    )
    assert "produce, not steady" in plots.ratios([one], [])


def test_both_states_of_the_memory_stand_in_one_table(tmp_path: Path) -> None:
    states = [row("produce-fresh", [2], [1]), row("produce-held", [3], [1]), row("lone", [1], [2])]
    for one in states[:2]:
        one.what, one.memory = "produce", one.name.removeprefix("produce-")
    release = release_of([read(saved(tmp_path / "a.json", *states))])
    text = report.table(list(release.rows), release.rows)
    assert [line.split(" | ")[4] for line in text.splitlines()[2:]] == ["fresh", "held", ""]
    assert "memory" in text.splitlines()[0]
    assert "memory" not in report.table(["lone"], release.rows)
    drawn = plots.ratios(states, [])
    assert "produce, fresh memory" in drawn
    assert "produce, held memory" in drawn


def test_a_page_lists_the_runs(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.json", row("lone", [1], [2]), versions={"confluent-kafka": "2.16"})
    text = report.filled("<!-- runs -->\nold\n<!-- /runs -->\n", release_of([read(path)]))
    assert "| 2026-11-23 20:57 | 64e3992e | 1 | 2 cores" in text
    assert "confluent-kafka 2.16" in text
    assert "old" not in text


def test_the_newest_run_of_a_row_is_merged_and_keeps_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RELEASE", tmp_path / "figures.json")
    old = saved(tmp_path / "old.json", row("lone", [1], [2]), row("push", [3], [4]), commit="old")
    new = saved(
        tmp_path / "new.json",
        row("lone", [5], [6]),
        row("Java client, sync", [7], [8]),
        commit="new",
        taken="2026-11-24T20:57:49+00:00",
    )
    # The order in which they are named does not count, and twice is as good as once.
    for paths in ([new], [old], [new, old]):
        assert report.main(["merge", *map(str, paths)]) == 0
    release = read_release(report.RELEASE)
    assert {name: run["commit"] for name, run in release.run_of.items()} == {
        "push": "old",
        "lone": "new",
        "java-client-sync": "new",
    }
    assert release.rows["lone"].figures["ours"] == [5]
    later = saved(tmp_path / "later.json", row("push", [9], [9]), taken="2026-11-25T00:00:00+00:00")
    assert report.main(["merge", str(later)]) == 0
    assert [run["commit"] for run in read_release(report.RELEASE).runs] == ["new", "64e3992e"]


@pytest.mark.skipif(not is_available(), reason="hdrhistogram is of the extra `bench`")
def test_a_merged_row_has_the_percentiles_of_all_its_turns(tmp_path: Path) -> None:
    one = row("latency", [100], [200], less=True)
    one.latencies = {
        "ours": [OpenLoop([took * 1e-6] * 10, [1e-6] * 10).summary() for took in (100, 200, 200)]
    }
    run = read(saved(tmp_path / "a.json", one))
    release = release_of(merged(merged([], [run]), []))
    text = report.filled("<!-- latencies: latency -->\n<!-- /latencies -->\n", release)
    assert text.splitlines()[3] == "| latency | ours | 200 | 200 | 200 | 1 | 1 | 1 |"


def test_a_quick_run_is_not_released(tmp_path: Path) -> None:
    run = read(saved(tmp_path / "a.json", row("lone", [1], [2]), options={"quick": True}))
    with pytest.raises(ResultsError, match="is a quick one: measure without QUICK=1"):
        merged([], [run])


def test_merge_says_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RELEASE", tmp_path / "figures.json")
    full = {"rounds": 5, "scale": 1.0}
    first = saved(tmp_path / "a.json", row("lone", [1], [2]), row("push", [3], [4]), options=full)
    assert report.main(["merge", str(first)]) == 0
    assert capsys.readouterr().out == "2 rows taken, 0 older than the released ones\n"
    old = saved(tmp_path / "b.json", row("lone", [9], [9]), taken="2020-01-01T00:00:00+00:00")
    assert report.main(["merge", str(old)]) == 0
    assert capsys.readouterr().out == "0 rows taken, 1 older than the released ones\n"
    less = {"rounds": 1, "scale": 0.1}
    new = {"taken": "2026-11-25T00:00:00+00:00", "options": less}
    assert (
        report.main(["merge", str(saved(tmp_path / "c.json", row("lone", [1], [2]), **new))]) == 0
    )
    assert capsys.readouterr().out.splitlines() == [
        "1 rows taken, 0 older than the released ones",
        "lone: rounds 1, before 5",
        "lone: scale 0.1, before 1.0",
    ]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "it has no rows"),
        ([Row(name="a", what="a", unit="s", target="", figures={"theirs": [1]})], "no figures of"),
        ([row("a", [1], [0])], "row a has a figure of 0"),
        ([row("a", [0], [1])], "row a has a figure of 0"),
    ],
)
def test_a_row_that_no_table_can_show_is_not_released(
    tmp_path: Path, rows: list[Row], words: str
) -> None:
    path = saved(tmp_path / "a.json")
    raw = json.loads(path.read_text()) | {"rows": [vars(one) for one in rows]}
    path.write_text(json.dumps(raw))
    with pytest.raises(ResultsError, match=words):
        merged([], [read(path)])
    if rows:
        with pytest.raises(ResultsError, match=words):
            read_release(released(tmp_path / "figures.json", raw))


def test_a_write_that_fails_leaves_the_released_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = released(tmp_path / "figures.json", read(saved(tmp_path / "a.json", row("a", [1], [2]))))
    before = path.read_text()
    # What cannot be encoded ends the write after the file was opened.
    with pytest.raises(UnicodeEncodeError):
        write_release(path, [{"taken": "\ud800"}])
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([5], "run 0 has no rows"),
        ([{"rows": [5]}], "run 0: `taken` is None"),
        (None, "is no file of released figures"),
    ],
)
def test_a_file_of_released_figures_with_something_else_in_it_is_refused(
    tmp_path: Path, runs: object, words: str
) -> None:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"format": FORMAT, "runs": runs}))
    with pytest.raises(ResultsError, match=words):
        read_release(path)


def test_a_row_in_two_released_runs_is_refused(tmp_path: Path) -> None:
    run = read(saved(tmp_path / "a.json", row("lone", [1], [2])))
    with pytest.raises(ResultsError, match="more than one run has lone"):
        read_release(released(tmp_path / "figures.json", run, run))


def test_the_picture_shows_each_ratio_with_its_range() -> None:
    rows = [
        row("produce <a> & `b`", [200, 100, 300], [100] * 3),
        row("lone", [30, 20, 10], [10, 10, 10], less=True),
        Row(what="nothing beside it", unit="msg/s", target=""),
        Row(
            what="our own server without TLS beside it",
            unit="msg/s",
            target="",
            rival="pyrmq",
            figures={"ours": [1], "pyrmq": [2]},
        ),
    ]
    machines = [{"cores": 2, "memory_gib": 24}] * 2
    drawn = ElementTree.fromstring(plots.ratios(rows, machines))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "produce <a> & b" in texts
    assert "2.00 (1.00 to 3.00)" in texts
    assert "0.50 (0.33 to 1.00)" in texts
    assert not {"nothing beside it", "our own server without TLS beside it"} & set(texts)
    assert texts[-1] == "2 cores, 24 GiB; the line is the range over the turns"
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
    run = read(saved(tmp_path / "a.json", row("lone", [1], [2])))
    monkeypatch.setattr(report, "RELEASE", released(tmp_path / "figures.json", run))
    assert report.main(["docs", "--check"]) == 1
    assert "figures.svg: run `python -m benches.report docs`" in capsys.readouterr().err
    assert report.main(["docs"]) == 0
    assert report.main(["docs", "--check"]) == 0
    picture.write_text(picture.read_text().replace("0.50", "0.60"))
    assert report.main(["docs", "--check"]) == 1


def test_what_bench_saves_has_the_form_that_is_read(tmp_path: Path) -> None:
    done = [row("latency", [2, 3], [1, 1], less=True), Row(what="start", unit="ms", target="")]
    done[0].latencies = {"ours": [SUMMARY, SUMMARY], "kafka": [SUMMARY, SUMMARY]}
    done[0].steady = {"ours": True, "kafka": False}
    done[1].add("ours", 65, server=os.getpid())
    done[1].memory = "held"
    file = ResultsFile(tmp_path, machine=machine(), options={"rounds": 2, "out": tmp_path})
    for one in done:
        file.add(one)
    read = load(file.path)
    assert list(read) == ["latency", "start"]
    assert read["latency"].latencies["kafka"] == [SUMMARY, SUMMARY]
    assert read["latency"].steady == {"ours": True, "kafka": False}
    assert min(read["start"].server_mib["ours"]) > 1
    assert read["start"].memory == "held"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"taken": None}, "`taken` is None, not a str"),
        ({"machine": []}, r"`machine` is \[\], not a dict"),
        ({"rows": [5]}, "row 0 is no object"),
        ({"rows": [vars(row("lone", [10**400], [1]))]}, "`figures`, ours: .* are no figures"),
        ({"rows": [vars(row("—", [1], [2]))]}, "row —: `name` has no ASCII letter or digit"),
        ({"rows": [vars(row("lone", [], [1]))]}, r"row lone: `figures`, ours: \[\] are no figures"),
        ({"rows": [vars(row("lone", [1], [2])) | {"unit": 3}]}, "row lone: `unit` is no text"),
        ({"rows": [vars(row("lone", [1], [2]))] * 2}, "row lone is there twice"),
        ({"rows": [vars(row("a", [1], [2])) | {"cpu_us": [1]}]}, "row a: `cpu_us` is no object"),
        ({"rows": [vars(row("a", [1], [2])) | {"figures": {}}]}, "row a has no figures"),
        (latency_of([]), r"`latencies`, ours: \[\] are no turns"),
        (latency_of([5]), "`latencies`, ours: 5 is no object"),
        ({"rows": [vars(row("a", [1], [2])) | {"percentiles": 5}]}, "`percentiles` is no object"),
        (
            {"rows": [vars(row("a", [1], [2])) | {"percentiles": {"ours": {"p50": 1}}}]},
            "`percentiles`, ours: `p99` is None, not a figure",
        ),
        (latency_of([SUMMARY | {"p999": "slow"}]), "ours: `p999` is 'slow', not a figure"),
        (latency_of([SUMMARY | {"late_histogram": "x"}]), "ours: `late_histogram` is no histogram"),
        (
            {"rows": [vars(row("a", [1], [2])) | {"steady": {"kafka": "no"}}]},
            "row a: `steady` is {'kafka': 'no'}, not true or false by side",
        ),
        (
            {"rows": [vars(row("a", [1], [2])) | {"server_mib": {"ours": [None]}}]},
            r"row a: `server_mib`, ours: \[None\] are no figures",
        ),
        (
            {"rows": [vars(row("a", [1], [2])) | {"memory": "warm"}]},
            "row a: `memory` is 'warm', not fresh or held",
        ),
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


@pytest.mark.parametrize("is_first_full", [True, False])
def test_each_ratio_of_a_quick_run_lies_in_the_spread_of_the_full_one_or_not(
    tmp_path: Path,
    is_first_full: bool,  # noqa: FBT001 - pytest passes it by name
    capsys: pytest.CaptureFixture[str],
) -> None:
    turns = [100.0, 110.0, 120.0, 130.0, 140.0]
    full = [row(name, turns, [100] * 5) for name in ("inside", "low", "high", "gone")]
    full += [row("late", [100, 200], [200, 200], less=True)]
    full += [Row(name="start", what="start", unit="ms", target="", figures={"ours": [5]})]
    quick = [row("inside", [70], [50]), row("low", [49], [50]), row("high", [71], [50])]
    quick += [row("late", [100], [201], less=True), row("new", [1], [1]), full[-1]]
    paths = [
        saved(tmp_path / "full.json", *full, options={"quick": False, "scale": 1.0}),
        saved(tmp_path / "quick.json", *quick, options={"quick": True, "scale": 0.5}),
    ]
    given = paths if is_first_full else paths[::-1]
    assert report.main(["compare", *map(str, given)]) == 0
    said = capsys.readouterr()
    assert "not comparable: scale" in said.err
    assert said.out.split("\n\n")[1].splitlines()[2:] == [
        "| inside | 1.40 | 1.00 to 1.40 | yes |",
        "| low | 0.98 | 1.00 to 1.40 | below |",
        "| high | 1.42 | 1.00 to 1.40 | above |",
        "| late | 2.01 | 1.00 to 2.00 | above |",
    ]


def test_full_runs_are_compared_without_their_spreads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = saved(tmp_path / "one.json", row("lone", [1], [2]), options={"quick": False})
    assert report.main(["compare", str(one), str(one)]) == 0
    assert report.SPREAD_HEAD not in capsys.readouterr().out


def test_a_start_that_takes_twice_as_long_is_worse() -> None:
    before, after = (
        Row(name="start", what="start", unit="ms", target="<= 100 ms", figures={"ours": figures})
        for figures in ([40.0, 41.0, 39.0], [80.0, 81.0, 79.0])
    )
    assert "| worse |" in report.compared({"start": before}, {"start": after})[0]
    assert "| better |" in report.compared({"start": after}, {"start": before})[0]
    assert report.regressions({"start": before}, {"start": after})
    assert not report.regressions({"start": after}, {"start": before})


def test_rows_of_other_loads_are_not_compared() -> None:
    hour, minute = (row("sustained", [rate] * 3, [1] * 3) for rate in (1.0, 2.0))
    minute.what = "sustained for a minute"
    (line,) = report.compared({"sustained": hour}, {"sustained": minute})
    assert line == "| sustained for a minute | | | | another load: sustained |"


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
