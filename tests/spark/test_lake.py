"""Pipelines into Delta and Iceberg tables: `make lake`. Their jars come from Maven Central.

Each format runs on the newest Spark that it has a release for: Delta on the pinned PySpark, Iceberg
on the one that `make lake` installs next to it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tools.spark_versions import installed

pytest.importorskip("pyspark")

from tests.spark.test_elsewhere import environment, ran

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.topic import Topic

ROOT = Path(__file__).resolve().parents[2]
OF_ICEBERG = next(
    (path for release, path in installed().items() if release.startswith("4.1.")),
    ROOT / "target" / "pyspark" / "4.1",
)
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(3000),
    pytest.mark.skipif("PYRMQ_LAKE" not in os.environ, reason="left out: make lake runs it"),
]
DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
ICEBERG = {
    "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "spark.sql.extensions": ("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"),
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
}
BATCH = 100


@dataclass
class Lake:
    """A pipeline from a topic into a table of one format.

    Attributes:
        kind: delta or iceberg.
        folder: where file, table and checkpoint are.
        topic: the source.
        sent: ids that were sent.
    """

    kind: str
    folder: Path
    topic: Topic
    sent: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write the pipeline file."""
        where = 'path = "orders"' if self.kind == "delta" else 'table = "lake.shop.orders"'
        settings = "".join(f'"{name}" = "{value}"\n' for name, value in self.settings.items())
        self.file.write_text(
            f"""\
[source]
nameServer = "{self.topic.name_server}"
topic = "{self.topic.name}"
json = "id INT NOT NULL"
maxOffsetsPerTrigger = {BATCH}
[sink]
format = "{self.kind}"
{where}
[spark]
master = "local[2]"
{settings}"""
        )

    @property
    def file(self) -> Path:
        """The pipeline."""
        return self.folder / "orders.toml"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint of its rows."""
        return self.folder / "orders.checkpoint" / "main"

    @property
    def settings(self) -> dict[str, str]:
        """What Spark needs for the format."""
        if self.kind == "delta":
            return DELTA
        return {**ICEBERG, "spark.sql.catalog.lake.warehouse": str(self.folder / "warehouse")}

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process with the right Spark."""
        made = environment()
        if self.kind == "iceberg":
            paths = [str(OF_ICEBERG), made["PYTHONPATH"]]
            made |= {
                "PYTHONPATH": os.pathsep.join(paths),
                "SPARK_HOME": str(OF_ICEBERG / "pyspark"),
            }
        return made

    @property
    def command(self) -> list[str]:
        """Run the pipeline over what is there."""
        return [sys.executable, "-m", "pyrmq", "pipeline", "run", str(self.file)]

    def send(self, count: int) -> None:
        """Send the next ids."""
        first = len(self.sent)
        ids = range(first, first + count)
        self.sent += ids
        for queue in range(2):
            self.topic.send(queue, [f'{{"id": {one}}}' for one in ids if one % 2 == queue])

    def run(self) -> str:
        """Run it to its end."""
        return ran(self.command, env=self.environment, cwd=self.folder, timeout=900)

    def batches(self, folder: str) -> list[int]:
        """Return the batches that were planned (offsets) or done (commits)."""
        place = self.checkpoint / folder
        return sorted(int(file.name) for file in place.glob("*") if file.name.isdecimal())

    def ids(self) -> list[int]:
        """Read the table in a new session."""
        table = "delta.`{}`".format(self.folder / "orders") if self.kind == "delta" else ""
        program = (
            "import json, sys, pyrmq.spark\n"
            "spark = pyrmq.spark.session('local[1]', **json.loads(sys.argv[1]))\n"
            "rows = spark.sql('SELECT id FROM ' + sys.argv[2]).collect()\n"
            "print(json.dumps([row.id for row in rows]))\n"
        )
        wanted = [json.dumps(self.settings), table or "lake.shop.orders"]
        shown = ran([sys.executable, "-c", program, *wanted], env=self.environment, timeout=900)
        found: list[int] = json.loads(shown.splitlines()[-1])
        return sorted(found)

    def killed(self) -> None:
        """Run it, and kill everything of it when its second batch is planned.

        On Spark 4.1 a run has only one.
        """
        wanted = len(self.batches("offsets")) + (2 if self.kind == "delta" else 1)
        with subprocess.Popen(
            self.command,
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            deadline = time.monotonic() + 900
            while len(self.batches("offsets")) < wanted:
                assert process.poll() is None, "it ended before it could be killed"
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, new_topic: Callable[..., Topic], tmp_path: Path) -> Lake:
    """A pipeline whose table does not exist yet."""
    if request.param == "iceberg" and not OF_ICEBERG.exists():
        pytest.fail(f"{OF_ICEBERG} is missing: run `make lake`", pytrace=False)
    return Lake(request.param, tmp_path, new_topic(2))


def test_a_table_has_each_row_once_although_runs_are_killed_and_batches_repeated(
    lake: Lake,
) -> None:
    lake.send(5 * BATCH)
    lake.killed()
    lake.run()
    assert lake.ids() == lake.sent
    # The driver died after the table had the batch, and before Spark noted that.
    last = lake.batches("commits")[-1]
    for file in (lake.checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()
    lake.send(BATCH // 2)
    lake.run()
    if lake.kind == "iceberg":
        # On Spark 4.1 a run has one batch, and that was the last one again.
        lake.run()
    assert lake.ids() == lake.sent
    # A checkpoint that is older than the table: batches of the same numbers would be left out.
    for name in ("offsets", "commits"):
        for file in (lake.checkpoint / name).glob(f"*{lake.batches(name)[-1]}*"):
            file.unlink()
    with pytest.raises(
        AssertionError, match=r"key sink\.(path|table): .* it was deleted or restored"
    ):
        lake.run()


def test_bodies_of_a_schema_registry_are_read_as_the_docs_say(
    new_topic: Callable[..., Topic],
) -> None:
    topic = new_topic(1)

    def framed(number: int, identity: int, name: str) -> bytes:
        # Avro writes a small number as its double, and a text after its length.
        avro = bytes([identity * 2, len(name) * 2]) + name.encode()
        return b"\0" + number.to_bytes(4, "big") + avro

    topic.send(0, [framed(7, 1, "tea"), framed(8, 2, "coffee"), framed(7, 3, "milk")])
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    query = page[page.index("SELECT from_avro(") :].partition("\n```")[0]
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    program = (
        "import sys, json, pyrmq.spark\n"
        "package, servers, topic, query = sys.argv[1:]\n"
        "spark = pyrmq.spark.session('local[1]', **{'spark.jars.packages': package})\n"
        "reader = spark.read.format('rocketmq').option('nameServer', servers)\n"
        "reader.load(topic).createOrReplaceTempView('input')\n"
        "rows = spark.sql(query).collect()\n"
        "print(json.dumps(sorted([row[0].id, row[0].name] for row in rows)))\n"
    )
    package = re.search(r"org\.apache\.spark:spark-avro_2\.13:[\d.]+", page)
    assert package is not None
    given = [package[0], topic.name_server, topic.name, query.replace("schema", f"'{schema}'")]
    shown = ran([sys.executable, "-c", program, *given], timeout=900)
    assert json.loads(shown.splitlines()[-1]) == [[1, "tea"], [3, "milk"]]
