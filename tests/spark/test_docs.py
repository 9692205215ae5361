"""docs/spark.md and the README's section on Spark match the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Producer
from pyrmq._tables.options.option_table import KNOWN, LOG, SINK
from pyrmq._tables.schema import COLUMNS
from pyrmq.cli.main import main
from pyrmq.testing import cluster
from tests.spark.test_lake import DELTA, ICEBERG
from tests.test_readme import BLOCKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Site

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text()


def test_the_page_lists_every_option_with_its_default() -> None:
    table = PAGE.split("| option | default | meaning |\n|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    expected = [f"| {name} | {default} | {text} |" for name, (default, text) in KNOWN.items()]
    assert table.replace("\\|", "|").splitlines() == expected


def test_the_page_lists_every_option_of_the_sink() -> None:
    head = "| sink option | default | meaning |\n|---|---|---|\n"
    table = PAGE.split(head, 1)[1].split("\n\n", 1)[0]
    assert table.splitlines() == [
        f"| {name} | {default} | {text} |" for name, (default, text) in SINK.items()
    ]


def test_the_page_lists_every_option_of_log_files() -> None:
    head = "| log option | default | meaning |\n|---|---|---|\n"
    table = PAGE.split(head, 1)[1].split("\n\n", 1)[0]
    assert table.replace("\\|", "|").splitlines() == [
        f"| {name} | {default} | {text} |" for name, (default, text) in LOG.items()
    ]


def test_the_page_lists_every_column_with_its_type() -> None:
    table = PAGE.split("| column | type |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
    assert table.splitlines() == [f"| {name} | {kind} |" for name, kind in COLUMNS.items()]


def test_every_test_that_is_compared_with_kafkas_is_there() -> None:
    page = (ROOT / "docs" / "spark-kafka.md").read_text()
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(named) > 25
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / "spark" / file).read_text(), (file, test)


def test_the_page_of_pipelines_has_the_settings_of_tables_that_are_tested() -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    for name, value in {**DELTA, **ICEBERG}.items():
        assert f'"{name}" = "{value}"' in page


def test_the_page_says_what_to_do_instead_of_what_spark_does_not_do() -> None:
    table = PAGE.split("| | instead |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
    instead = dict(line.strip("| ").split(" | ", 1) for line in table.splitlines())
    assert set(instead) >= {
        "column pruning",
        "metrics of the source in the progress",
        "preferred locations of tasks",
        "real-time and continuous mode",
        "`CREATE TABLE ... USING rocketmq`",
        "pushing a LIMIT down",
        "a transaction across tasks, by half messages",
    }
    (decision,) = re.findall(r"\]\((decisions/[^)]+)\)", table)
    assert (ROOT / "docs" / decision).exists()


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_the_stream_of_the_readme_has_the_columns_that_it_names(
    spark: SparkSession, site: Site
) -> None:
    with Producer(name_server=site.name_server) as producer:
        producer.send("orders", b"two coffees")
    program = BLOCKS["README.md: import pyrmq.spark"]
    names: dict[str, Any] = {}
    exec(compile(program.replace("127.0.0.1:9876", site.name_server), "README.md", "exec"), names)
    assert names["spark"] is spark
    assert names["orders"].isStreaming
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    columns = re.search(r"The columns are ([^;]*);", readme)
    assert columns is not None
    assert names["orders"].columns == re.findall(r"`(\w+)`", columns[1])


@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
def test_the_programs_of_the_page_run(
    spark: SparkSession, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    _, send = re.findall(r"`pyrmq ((?:server|send)[^`]*)`", PAGE.split("```python", 1)[0])
    assert main([*shlex.split(send), "-n", site.name_server]) == 0
    programs = {
        name: block.replace("127.0.0.1:9876", site.name_server)
        for name, block in BLOCKS.items()
        if name.startswith("spark.md")
    }
    first, of_files, second = (programs[name] for name in sorted(programs))
    names: dict[str, Any] = {}
    exec(compile(first, "spark.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "|orders|" in shown
    names["orders"] = spark.sql("select 'tea' as body, 'hot' as tags, 'c1' as customer")
    exec(compile(second, "spark.md", "exec"), names)
    with cluster() as own:
        with Producer(name_server=own.name_server) as producer:
            producer.send("orders", b"from a file")
        exec(compile(of_files.replace("/data", str(own.store)), "spark.md", "exec"), names)
        assert names["orders"].filter("cast(body as string) = 'from a file'").count() == 1
    rows = spark.read.format("rocketmq").option("nameServer", site.name_server).load("orders")
    assert rows.filter("tags = 'hot' and cast(body as string) = 'tea'").count() == 1
