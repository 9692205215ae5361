"""Pipelines that run: rows, rejected rows, a second run, status, and the steps built in."""

from __future__ import annotations

import json
import shutil
import threading
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyrmq import Producer
from pyrmq.cli.main import main
from pyrmq.errors import ConfigError, RmqError
from pyrmq.pipeline import PipelineError, check, load, run, status
from pyrmq.pipeline.frames import _rejected
from pyrmq.pipeline.steps import deduplicate, mirror, replay, trace
from tests.e2e.terminals import WIPE, standard_error, steps
from tests.spark.conftest import LIMITS
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyrmq.pipeline.checkpoint import PipelineStatus

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),
]
FILE = """\
[source]
nameServer = "{name_server}"
topic = "{topic}"
json = "id BIGINT NOT NULL, total DOUBLE"
[[step]]
sql = "SELECT id, total * 2 AS twice, keys FROM input"
[quality]
where = "twice > 0"
reject = "{rejected}"
[sink]
format = "parquet"
path = "rows"
[spark]
master = "local[2]"
"""


def written(folder: Path, topic: Topic, rejected: str, text: str = FILE) -> Path:
    file = folder / "shop.toml"
    filled = text.format(name_server=topic.name_server, topic=topic.name, rejected=rejected)
    file.write_text(filled)
    return file


def orders(*totals: object) -> list[Sent]:
    return [
        Sent(json.dumps({"id": n, "total": total}).encode(), keys=f"k{n}")
        for n, total in enumerate(totals)
    ]


def test_a_pipeline_writes_rows_and_sets_others_apart(
    spark: SparkSession,
    new_topic: Callable[..., Topic],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, rejected = new_topic(1), new_topic(1)
    topic.send(0, [*orders(1.5, -1, 2), Sent(b"no json")])
    file = written(tmp_path, topic, rejected.name)
    assert main(["pipeline", "check", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "columns: id bigint, twice double, keys string" in shown
    assert main(["pipeline", "check", str(file), "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert (checked["file"], checked["found"]) == (str(file), shown.splitlines()[:-1])
    assert not (tmp_path / "rows").exists()
    assert main(["pipeline", "run", str(file), "--json"]) == 0
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (done["rows"], done["rejected"], done["error"]) == (4, 2, None)
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted((row.id, row.twice, row["keys"]) for row in rows.collect()) == [
        (0, 3.0, "k0"),
        (2, 4.0, "k2"),
    ]
    bad = {
        bytes(r.body).decode(): r.properties["pyrmq_reason"] for r in rejected.read(spark).collect()
    }
    assert bad == {
        '{"id":1,"twice":-2.0,"keys":"k1"}': "not twice > 0",
        "no json": "not a JSON object of id:bigint, total:double",
    }
    topic.send(0, orders(5))
    assert status(load(file)).lag is not None
    assert str(status(load(file))).startswith("shop: batch ")
    assert status(load(file)).lag.rows == 1  # type: ignore[union-attr]
    with standard_error(40) as terminal:
        assert main(["pipeline", "run", str(file)]) == 0
    # One for each of its queries.
    found = steps(terminal.shown)
    assert any(step.startswith("shop: batch ") for step in found)
    assert all(" rows in " in step and len(step) < 40 for step in found)
    assert terminal.shown.endswith(WIPE)
    assert ": 1 rows" in capsys.readouterr().out
    assert rows.sparkSession.read.parquet(str(tmp_path / "rows")).count() == 3
    assert main(["pipeline", "status", str(file)]) == 0
    assert ", no lag" in capsys.readouterr().out
    assert (tmp_path / "shop.checkpoint/report/report.html").exists()


def test_a_pipeline_that_fails_says_why(
    spark: SparkSession,
    new_topic: Callable[..., Topic],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = new_topic(1)
    topic.send(0, [*orders(1.5), Sent(b"no json")])
    file = written(tmp_path, topic, "fail")
    assert main(["pipeline", "run", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "source.json: not a JSON object of id:bigint, total:double: topic" in shown
    assert "queue 0, offset 1" in shown
    assert main(["pipeline", "status", str(file)]) == 1
    for change, text in (
        (("total * 2", "totl * 2"), "line 6, key step 1.sql: .*totl"),
        (("twice > 0", "thrice > 0"), "line 8, key quality.where: .*thrice"),
        (("id BIGINT", "id BIGNT"), "line 4, key source.json: the schema"),
    ):
        wrong = written(tmp_path, topic, "fail", FILE.replace(*change))
        with pytest.raises(PipelineError, match=text):
            run(spark, load(wrong))
        assert main(["pipeline", "check", str(wrong)]) == 2


def test_a_batch_reads_its_source_once_for_both_of_its_topics(
    spark: SparkSession, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    """Good rows go to the topic that is read: a second read would find and reject them."""
    topic, rejected = new_topic(1), new_topic(1)
    topic.send(0, [*orders(1, 2), Sent(b"no json")])
    text = FILE.replace("[[step]]", "batch = true\n[[step]]")
    text = text.replace("id, total * 2 AS twice, keys", "concat('done ', id) AS body")
    text = text.replace("twice > 0", "body <> 'done 1'").replace('"parquet"', '"topic"')
    text = text.replace('path = "rows"', f'topic = "{topic.name}"')
    report = run(spark, load(written(tmp_path, topic, rejected.name, text)))
    assert (report.error, report.rows, report.rejected) == (None, 3, 2)
    bodies = [bytes(row.body).decode() for row in topic.read(spark).collect()]
    assert bodies[3:] == ["done 0"]
    bad = {bytes(row.body).decode() for row in rejected.read(spark).collect()}
    assert bad == {"no json", '{"body":"done 1"}'}


def test_the_steps_that_are_built_in(spark: SparkSession, new_topic: Callable[..., Topic]) -> None:
    dead = new_topic(1)
    marks = {"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "orders", "color": "red"}
    dead.send(0, [Sent(b"x", keys="k1 k2", tags="a", properties=marks), Sent(b"x", keys="k1 k2")])
    frame = dead.read(spark)
    again = replay(frame).collect()
    assert [(row.topic, row["keys"], row.properties) for row in again] == [
        ("orders", ["k1", "k2"], {"color": "red"}),
        (None, ["k1", "k2"], {}),
    ]
    copied = mirror(frame).collect()
    assert {row.shardingKey for row in copied} == {f"{dead.name}:{dead.broker_name()}:0"}
    assert deduplicate(frame, keys=["keys"]).count() == 1
    # Rows without any key are no duplicates of each other.
    assert (
        deduplicate(frame.selectExpr("NULL AS keys", "storeTimestamp"), keys=["keys"]).count() == 2
    )
    with pytest.raises(Exception, match="columns nokey are missing"):
        deduplicate(frame, keys=["nokey"])


def test_traces_become_rows(spark: SparkSession, new_topic: Callable[..., Topic]) -> None:
    topic, traces = new_topic(1), new_topic(1)
    with Producer(
        name_server=topic.name_server, group="traced", trace=True, trace_topic=traces.name
    ) as producer:
        producer.send(topic.name, b"x" * 7, keys=["k"], tags="t")
    (row,) = trace(traces.read(spark)).where(f"topic = '{topic.name}'").collect()
    assert (row.kind, row.group, row.tags, row["keys"], row.bodyBytes, row.ok) == (
        "Pub",
        "traced",
        "t",
        "k",
        7,
        True,
    )
    assert row.costMs >= 0
    assert row.at.year >= 2024


STEPS = """\
from pyspark.sql import functions as F
import shop_words


def shout(frame):
    return frame.withColumn("body", F.udf(shop_words.upper)(F.col("body").cast("string")))


def fails(frame):
    raise ValueError("no such factor")
"""
COPY = """\
[source]
nameServer = "{name_server}"
topic = "{topic}"
group = "copies"
commitToGroup = true
[[step]]
python = "shop_steps:shout"
[sink]
format = "parquet"
path = "copied"
"""


@pytest.mark.nightly
def test_a_pipeline_runs_again_and_again_with_steps_beside_its_file(
    spark: SparkSession, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = new_topic(1)
    topic.send(0, ["a", "b"])
    (tmp_path / "shop_steps.py").write_text(STEPS)
    (tmp_path / "shop_words.py").write_text("def upper(text):\n    return text.upper()\n")
    file = written(tmp_path, topic, "", COPY)
    assert "source: it has rows" in check(spark, load(file))
    nowhere = COPY.replace("{name_server}", "127.0.0.1:1").replace(
        "[[step]]", "timeoutMs = 100\n[[step]]"
    )
    with pytest.raises(RmqError, match="no name server answered"):
        check(spark, load(written(tmp_path, topic, "", nowhere)))
    written(tmp_path, topic, "", COPY)
    stop = threading.Event()
    seen: list[PipelineStatus] = []

    def on_batch(_: object) -> None:
        seen.append(status(load(file)))
        topic.send(0, ["c"]) if len(seen) == 1 else stop.set()

    report = run(spark, load(file), every="1s", stop=stop, on_batch=on_batch)
    assert (report.error, report.rows) == (None, 3)
    rows = spark.read.parquet(str(tmp_path / "copied")).collect()
    assert sorted(row.body for row in rows) == ["A", "B", "C"]
    assert "; running for " in str(seen[0])
    assert status(load(file)).running is None
    with pytest.raises(ConfigError, match="option every: expected a duration such as 500ms, 30s"):
        run(spark, load(file), every="soon")
    wrong = written(tmp_path, topic, "", COPY.replace("shout", "fails"))
    with pytest.raises(PipelineError, match=r"key step 1.python: .* ValueError: no such factor"):
        run(spark, load(wrong))
    assert status(load(wrong)).error is not None
    # The sink keeps its files, and the checkpoint is gone.
    shutil.rmtree(tmp_path / "shop.checkpoint")
    written(tmp_path, topic, "", COPY)
    with pytest.raises(PipelineError, match=r"key sink.path: .* Restore the checkpoint"):
        run(spark, load(file))


def test_a_batch_that_is_run_again_is_not_appended(
    spark: SparkSession, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = new_topic(1)
    topic.send(0, ["a", "b"])
    text = '[source]\nnameServer = "{name_server}"\ntopic = "{topic}"\nbatch = true\n'
    file = written(tmp_path, topic, "", text + '[sink]\nformat = "parquet"\npath = "once"\n')
    assert run(spark, load(file)).error is None
    assert "already exists" in str(run(spark, load(file)).error)
    assert spark.read.parquet(str(tmp_path / "once")).count() == 2


DEDUPE = """\
[source]
nameServer = "{name_server}"
topic = "{topic}"
maxOffsetsPerTrigger = 30
[[step]]
python = "pyrmq.pipeline.steps:deduplicate"
args = {{ keys = ["keys"], within = "1 second" }}
[sink]
format = "parquet"
path = "distinct"
"""


@pytest.mark.nightly
@pytest.mark.skipif(not LIMITS, reason="on Spark 4.1 a run is one batch, which drops no row")
def test_rows_that_a_deduplication_drops_as_too_late_fail_the_run(
    spark: SparkSession, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = new_topic(2)
    topic.send(0, [Sent(b"old", keys=f"k{n}") for n in range(80)])
    time.sleep(2.5)  # the queues of a backlog lie apart in time
    topic.send(1, [*[Sent(b"new", keys=f"m{n}") for n in range(5)], b"no key", b"no key"])
    report = run(spark, load(written(tmp_path, topic, "", DEDUPE)))
    assert "rows were older than the newest one by more than `within`" in str(report.error)
    rows = spark.read.parquet(str(tmp_path / "distinct"))
    assert rows.where("keys IS NULL").count() == 2
    dropped = report.dropped["dedupeWithinWatermark"]
    assert dropped == 87 - rows.count() > 0
    assert f"{dropped} dropped as later than the watermark" in str(report)


def test_a_rejected_row_that_is_too_large_as_json_goes_as_it_came(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = FILE.format(name_server="h:1", topic="t", rejected="bad")
    file = tmp_path / "shop.toml"
    file.write_text(text)
    sizes = "explode(array(10, 3500000, 5000000)) AS size"
    judged = spark.sql(
        f"SELECT cast(repeat('x', size) AS binary) AS body, 'why' AS __why FROM (SELECT {sizes})"
    )
    rows = _rejected(load(file), judged, None).selectExpr(
        "octet_length(body) AS bytes", "left(cast(body AS string), 9) AS text", "properties"
    )
    found = sorted(
        (row.bytes, row.text, row.properties.get("pyrmq_bytes")) for row in rows.collect()
    )
    assert found[0][1] == '{"body":"'
    assert found[1:] == [(3_500_000, "xxxxxxxxx", None), (4_128_768, "xxxxxxxxx", "5000000")]
