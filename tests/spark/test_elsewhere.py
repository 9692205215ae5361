"""Where else it runs: Spark Connect, declarative pipelines, a standalone cluster."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyspark

from pyrmq import arrow
from tests.spark.conftest import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.spark.topic import Topic

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
SHIPPED = ("pyarrow", "pandas", "numpy", "pytz", "python-dateutil", "tzdata")
WITH_CONNECT = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None or importlib.util.find_spec("yaml") is None,
    reason="left out: pip install pyspark[connect,pipelines]",
)
pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a driver with this Python, and a JVM that starts quickly."""
    paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    return {
        **{name: text for name, text in os.environ.items() if name != "NAMESRV_ADDR"},
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {QUICK_JVM}",
        **more,
    }


def ran(
    arguments: list[str],
    env: dict[str, str] | None = None,
    cwd: Path = ROOT,
    timeout: float = 300,
) -> str:
    """Run a program to its end, and return its output."""
    done = subprocess.run(
        arguments,
        env=env or environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def bodies(topic: Topic) -> list[str]:
    """Return the bodies in a topic."""
    table = arrow.read(topic.name, name_server=topic.name_server, columns=["body"])
    return sorted(body.decode() for body in table.column("body").to_pylist())


@WITH_CONNECT
def test_a_program_under_connect_reads_streams_and_writes(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(1)
    source.send(0, ["a", "b", '{"id": 7}'])
    arguments = [source.name_server, source.name, target.name, str(tmp_path)]
    shown = ran([sys.executable, "-m", "tests.spark.connect_driver", *arguments])
    seen = json.loads(shown.splitlines()[-1])
    assert seen["session"].startswith("pyspark.sql.connect")
    assert seen["read"] == ["a", "b", '{"id": 7}']
    assert (seen["json"], seen["function"], seen["lag"]) == ([7, 0], 3, 0)
    assert bodies(target) == ["streamed a", "streamed b", 'streamed {"id": 7}', "written"]
    assert seen["listen"] == "done"
    assert "Spark Connect has no SparkContext" in seen["doctor"]


@WITH_CONNECT
def test_declarative_pipelines_read_and_write_topics(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(1), new_topic(1)
    source.send(0, ["a", "b"])
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file://{tmp_path}/storage\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    steps = tmp_path / "transformations"
    steps.mkdir()
    (steps / "orders.py").write_text(
        f"""\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink(
    "target", format="rocketmq",
    options={{"nameServer": "{target.name_server}", "topic": "{target.name}"}},
)

@dp.table
def orders():
    return (
        spark.readStream.format("rocketmq").option("nameServer", "{source.name_server}")
        .option("startingOffsets", "earliest").load("{source.name}")
        .selectExpr("cast(body AS string) AS body")
    )

@dp.append_flow(target="target")
def seen():
    return spark.readStream.table("orders").selectExpr("concat('seen ', body) AS body")
"""
    )
    ran([str(SPARK_HOME / "bin" / "spark-pipelines"), "run"], cwd=tmp_path)
    assert bodies(target) == ["seen a", "seen b"]


def shipped(folder: Path) -> Path:
    """Make the directory that docs/spark.md ships: the wheel, and what it needs.

    pip installs the wheel, PYRMQ_WHEEL or a new one; the rest is copied from here, where pip would
    download it.
    """
    target = folder / "environment"
    wheel = os.environ.get("PYRMQ_WHEEL")
    if wheel is None:
        maturin = str(Path(sys.executable).parent / "maturin")
        ran([maturin, "build", "--release", "--quiet", "--out", str(folder)], timeout=1500)
        wheel = str(next(folder.glob("*.whl")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    ran([*pip, "--target", str(target), wheel])
    there = {dist.name for dist in importlib.metadata.distributions()}
    # six: of older releases of python-dateutil.
    for name in [*SHIPPED, *({"six"} & there)]:
        for path in importlib.metadata.files(name) or ():
            if ".." not in path.parts and "tests" not in path.parts and path.suffix != ".pyc":
                place = target / path
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path.locate(), place)
    return target


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a master and two workers from the PySpark distribution; yield the master's address.

    Neither has this package on its path.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    bare = environment(PYTHONPATH="", PYSPARK_PYTHON=bare_python(), SPARK_HOME=str(SPARK_HOME))
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", *common, "--port", str(port)]]
    for number in (1, 2):
        place = ["--work-dir", str(folder / f"work{number}"), "--cores", "1", "--memory", "1g"]
        commands.append([f"{deploy}.worker.Worker", *common, *place, address])
    started = []
    try:
        for number, command in enumerate(commands):
            log = folder / f"server{number}.log"
            with log.open("wb") as output:
                started.append(
                    subprocess.Popen(
                        [str(SPARK_HOME / "bin" / "spark-class"), *command],
                        env=bare,
                        stdout=output,
                        stderr=output,
                    )
                )
        registered = re.compile("Registering worker ")
        deadline = time.monotonic() + 120
        while len(registered.findall((folder / "server0.log").read_text())) < 2:
            assert time.monotonic() < deadline, (folder / "server0.log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


def bare_python() -> str:
    """Return the Python below the virtual environment: it has none of its packages."""
    python = str(Path(sys.base_prefix) / "bin" / Path(sys.executable).name)
    found = (
        python if Path(python).exists() else shutil.which("python3", path=f"{sys.base_prefix}/bin")
    )
    assert found is not None
    return found


STEPS = """\
from pyspark.sql.functions import udf


@udf("string")
def place(number):
    import pyrmq._core

    return pyrmq._core.__file__


def located(frame):
    return frame.withColumn("place", place("id"))
"""


@pytest.mark.timeout(1800)
def test_a_cluster_runs_a_pipeline_file_with_the_wheel_in_an_archive(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    """Neither driver nor executors see this checkout, or a Python that has the package."""
    source, rejected = new_topic(4), new_topic(1)
    for queue in range(4):
        source.send(queue, [f'{{"id": {queue * 10 + n}}}' for n in range(5)])
    source.send(0, ["no json"])
    environment_ = shipped(tmp_path)
    archive = shutil.make_archive(str(environment_), "zip", environment_)
    settings = {
        "spark.archives": f"{archive}#environment",
        "spark.executorEnv.PYTHONPATH": "environment",
        "spark.python.daemon.module": "pyrmq.spark.daemon",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    (tmp_path / "where_steps.py").write_text(STEPS)
    file = tmp_path / "orders.toml"
    file.write_text(
        f"""\
[source]
nameServer = "{source.name_server}"
topic = "{source.name}"
json = "id INT NOT NULL"
minPartitions = 4
[[step]]
python = "where_steps:located"
[quality]
reject = "{rejected.name}"
[sink]
format = "parquet"
path = "rows"
[spark]
"""
        + "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
    )
    # The driver's PySpark is that of the Spark distribution.
    parts = [environment_, *(SPARK_HOME / "python" / "lib").glob("*.zip")]
    how = environment(
        PYSPARK_PYTHON=bare_python(),
        PYTHONPATH=os.pathsep.join(map(str, parts)),
        SPARK_HOME=str(SPARK_HOME),
    )
    program = [bare_python(), "-m", "pyrmq"]
    with standalone(tmp_path) as master:
        run = [*program, "pipeline", "run", str(file), "--master", master]
        assert "21 rows" in ran(run, env=how, cwd=tmp_path)
        source.send(3, ['{"id": 100}'])
        assert "orders: 1 rows" in ran(run, env=how, cwd=tmp_path)
        doctor = [*program, "spark", "doctor", "-n", source.name_server, "--master", master]
        for name, value in settings.items():
            doctor += ["--conf", f"{name}={value}"]
        assert "asked 2 executors" in ran(doctor, env=how, cwd=tmp_path)
    import pyarrow.parquet as pq

    rows = pq.read_table(tmp_path / "rows")
    wanted = [queue * 10 + n for queue in range(4) for n in range(5)]
    assert sorted(rows.column("id").to_pylist()) == [*wanted, 100]
    assert bodies(rejected) == ["no json"]
    places = {Path(place) for place in rows.column("place").to_pylist()}
    assert {place.parents[1].name for place in places} == {"environment"}
    assert {place.relative_to(tmp_path).parts[0] for place in places} == {"work1", "work2"}
