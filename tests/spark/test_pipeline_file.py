"""Pipeline files: what they may say, and errors with line and key. Without Spark."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyrmq import Admin
from pyrmq.cli.main import main
from pyrmq.pipeline import PipelineError, load, run, status
from pyrmq.pipeline.checking import missing_topics
from pyrmq.pipeline.checkpoint import running_note
from pyrmq.pipeline.lines import find_lines
from pyrmq.pipeline.modules import _imported
from pyrmq.pipeline.options import period_ms
from pyrmq.pipeline.report import Report, write_report
from pyrmq.pipeline.templates import TEMPLATES
from pyrmq.spark.progress.figures import BatchFigures, Lag

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

GOOD = """\
name = "shop"
[source]
nameServer = "h:1"
topic = "orders"
maxOffsetsPerTrigger = 10
json = "id BIGINT"

[[step]]
sql = '''
SELECT *,
  id + 1 AS next = 2
FROM input'''
[[step]]
python = "shop.steps:enrich"
args = { factor = 2 }

[quality]
where = "id > 0"
reject = "orders-rejected"
[sink]
format = "parquet"
path = "lake/orders"
partitionBy = ["id"]
[spark]
master = "local[2]"
"spark.sql.shuffle.partitions" = 4
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "p.toml"
    file.write_text(text)
    return file


def test_a_file_is_read_with_paths_beside_it(tmp_path: Path) -> None:
    made = load(written(tmp_path, GOOD))
    assert made.source == {
        "nameServer": "h:1",
        "topic": "orders",
        "maxOffsetsPerTrigger": "10",
        "startingOffsets": "earliest",
    }
    assert (made.name, made.json, made.where) == ("shop", "id BIGINT", "id > 0")
    assert made.steps[1].args == {"factor": 2}
    assert made.sink["path"] == str(tmp_path / "lake/orders")
    assert made.checkpoint == tmp_path / "shop.checkpoint"
    assert made.spark["spark.sql.shuffle.partitions"] == "4"


def test_spark_is_a_table(tmp_path: Path) -> None:
    text = GOOD.partition("[spark]")[0].replace('name = "shop"', "spark = 5")
    with pytest.raises(PipelineError, match=r"line 1, key spark: expected a table \[spark\]"):
        load(written(tmp_path, text))


def test_options_have_their_other_names(tmp_path: Path) -> None:
    made = load(written(tmp_path, GOOD.replace('topic = "orders"', 'subscribe = "orders"')))
    assert made.source["subscribe"] == "orders"


def test_lines_of_texts_of_several_lines_are_no_keys() -> None:
    found = find_lines(GOOD)
    assert found["step", 0, "sql"] == 9
    assert found["step", 1, "python"] == 14
    assert found["spark", 0, "spark.sql.shuffle.partitions"] == 26
    assert ("step", 0, "id") not in found


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (('topic = "orders"', 'topik = "orders"'), "line 4, key source.topik: unknown, did you"),
        (
            ('topic = "orders"', 'topic = "a b"'),
            "line 4, key source.topic: not a topic name: 'a b'",
        ),
        (("= 10", '= "ten"'), "line 5, key source.maxOffsetsPerTrigger: expected a whole number"),
        (
            ('json = "id BIGINT"', "json = 3"),
            "line 6, key source.json: expected a string, found: 3",
        ),
        (
            ('python = "', 'sql = "x"\npython = "'),
            "line 13, key step 2: expected either sql or python",
        ),
        (
            ("shop.steps:enrich", "shop.steps"),
            "line 14, key step 2.python: expected MODULE:FUNCTION",
        ),
        (("orders-rejected", "a b"), "line 19, key quality.reject: expected drop, fail or a topic"),
        (
            ('format = "parquet"', 'format = "parket"'),
            "line 21, key sink.format: format: expected one of",
        ),
        (('path = "lake/orders"\n', ""), "line 20, key sink: path is missing: format parquet"),
        (("[quality]", "[qualities]"), "line 17, key qualities: unknown, did you mean quality?"),
        (("[sink]", "[sink"), "p.toml: not TOML: "),
        (('"h:1"', '"h"'), "line 3, key source.nameServer: expected host:port, found: 'h'"),
        (('nameServer = "h:1"', 'path = "/data"'), "line 3, key source.path: a directory is read"),
        (
            ('topic = "orders"', 'topic = ["a"]'),
            "line 4, key source.topic: expected a string or a number",
        ),
        (
            ("partitionBy", 'mode = "overwrit"\npartitionBy'),
            "line 23, key sink.mode: expected one of append",
        ),
        (("orders-rejected", "orders"), "line 19, key quality.reject: the pipeline reads topic"),
        (
            ('topic = "orders"', 'topicPattern = "ord.*"'),
            "line 19, key quality.reject: the pipeline reads topic orders-rejected",
        ),
        (
            ('"parquet"\npath = "lake/orders"\npartitionBy = ["id"]', '"topic"\ntopic = "orders"'),
            "line 22, key sink.topic: the pipeline reads topic orders",
        ),
        (('name = "shop"', "names = 1"), "line 1, key names: unknown, did you mean name?"),
    ],
)
def test_an_error_names_line_and_key(tmp_path: Path, change: tuple[str, str], text: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(PipelineError) as caught:
        load(written(tmp_path, GOOD.replace(*change)))
    assert text in str(caught.value)
    assert str(caught.value).startswith("p.toml")


def test_a_file_that_is_missing_or_lacks_a_table(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nowhere.toml: cannot be read: No such file"):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(PipelineError, match=r"table \[sink\] is missing"):
        load(written(tmp_path, '[source]\nnameServer = "h:1"\ntopic = "x"\n'))


def test_topics_that_do_not_exist_are_found(tmp_path: Path, rocketmq_session: Cluster) -> None:
    names = rocketmq_session.name_server
    with Admin(name_server=names) as admin:
        admin.create_topic("there", queues=1)
    text = GOOD.replace('"h:1"', f'"{names}"').replace("orders-rejected", "nowhere")
    to_topic = text.replace('format = "parquet"\npath = "lake/orders"\npartitionBy = ["id"]', "{}")
    sink = 'format = "topic"\ntopic = "{}"'
    for topic, missing in (("there", ["nowhere"]), ("elsewhere", ["elsewhere", "nowhere"])):
        made = load(written(tmp_path, to_topic.replace("{}", sink.format(topic))))
        assert missing_topics(made) == missing
    assert missing_topics(load(written(tmp_path, text.replace("nowhere", "drop")))) == []


def test_the_file_of_the_docs_is_a_pipeline(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/pipelines.md").read_text()
    made = load(written(tmp_path, page.partition("```toml\n")[2].partition("```")[0]))
    assert made.reject == "orders-rejected"
    assert made.steps[1].args == {"factor": 2}


@pytest.mark.parametrize("kind", [*TEMPLATES])
def test_every_template_is_a_pipeline(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "init", kind]) == 0
    text = capsys.readouterr().out
    assert load(written(tmp_path, text)).sink["format"] in {"parquet", "topic", "console"}
    assert main(["pipeline", "init", kind, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"kind": kind, "text": text}


def test_wrong_arguments_end_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "init", "lakes"]) == 2
    assert main(["pipeline", "status", str(tmp_path / "no.toml")]) == 2
    assert "no.toml: cannot be read" in capsys.readouterr().err
    assert main(["pipeline", "run", str(written(tmp_path, "[source]")), "--once"]) == 2


def test_a_pipeline_that_never_ran_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "status", str(written(tmp_path, GOOD))]) == 0
    assert capsys.readouterr().out == "shop: has not finished a batch\n"


def test_a_report_has_figures_a_picture_and_a_page(tmp_path: Path) -> None:
    report = Report("shop <1>", seconds=2.0)
    for number in range(2):
        observed = {"rows": {"rows": 8, "rejected": 1}, "json": {"unreadable": 2}}
        report.add(
            BatchFigures(
                query="shop",
                batch=number,
                rows=10,
                rows_per_second=5.0,
                seconds=2.0,
                lag=Lag(rows=3 - number),
                observed=observed,
            )
        )
    assert str(report) == "shop <1>: 20 rows in 2.0 s, 10 rows/s, 6 rejected, 2 still wait: done"
    names = sorted(file.name for file in write_report(report, tmp_path / "report"))
    assert names == ["report.html", "report.json", "report.png"]
    assert (tmp_path / "report/report.png").stat().st_size > 5000
    assert "<h1>shop &lt;1&gt;</h1>" in (tmp_path / "report/report.html").read_text()


def test_a_period_is_a_duration() -> None:
    periods = ("10s", "500ms", "1h", "0 seconds", "2 minutes")
    assert [period_ms(text) for text in periods] == [10_000, 500, 3_600_000, 0, 120_000]


@pytest.mark.parametrize("every", ["soon", "10", "10 days"])
def test_a_wrong_period_is_refused_before_spark_starts(
    every: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrmq.spark.local.session", lambda *_, **__: pytest.fail("Spark starts"))
    assert main(["pipeline", "run", str(written(tmp_path, GOOD)), "--every", every]) == 2
    assert "expected a duration such as 500ms, 30s, 15m or 1h" in capsys.readouterr().err


def test_the_status_tells_a_run_that_was_killed_from_one_that_goes_on(tmp_path: Path) -> None:
    made = load(written(tmp_path, GOOD))
    with running_note(made):
        assert status(made).running is not None
        assert status(made).error is None
    assert (status(made).running, status(made).error) == (None, None)
    note = tmp_path / "shop.checkpoint/report/running.json"
    note.write_text('{"pid": 77, "started_at": 1.0}\n')
    assert "its process 77 ended without a report" in str(status(made))
    assert main(["pipeline", "status", str(tmp_path / "p.toml")]) == 1


def test_a_run_that_is_interrupted_or_wrong_leaves_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = load(written(tmp_path, GOOD))
    for error, text in (
        (KeyboardInterrupt(), "it was interrupted"),
        (PipelineError("p.toml", 8, "step 1.sql", "no column"), "p.toml, line 8, key step 1.sql"),
    ):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("pyrmq.pipeline.running._activate", fail)
        with pytest.raises(type(error)):
            run(None, made)  # type: ignore[arg-type]
        assert text in str(status(made).error)
        assert status(made).running is None


def test_modules_and_packages_beside_the_file_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare_package").mkdir()
    (tmp_path / "full_package").mkdir()
    for name in ("bare_package/one.py", "full_package/__init__.py", "single.py", "unused.py"):
        (tmp_path / name).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("bare_package.one", "full_package", "single"):
        import_module(name)
    assert {place.name for place in _imported(tmp_path)} == {
        "bare_package",
        "full_package",
        "single.py",
    }
