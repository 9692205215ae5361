"""What travels to executors says there what is missing, and workers start with their modules."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

import pyrmq
from pyrmq._tables.errors import BrokerAway
from pyrmq._tables.offsets import Queue
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.plan import Range
from pyrmq._tables.worker import Part, batches
from pyrmq.spark import checks
from pyrmq.spark.reading.batch import BatchReader
from pyrmq.spark.reading.stream import StreamReader
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = pyrmq.__version__
ROOT = Path(__file__).resolve().parents[2]
OPEN = """
import sys
from pyspark import cloudpickle
{before}
reader = cloudpickle.loads(sys.stdin.buffer.read())
print(type(reader).__name__, reader.options.topics)
"""


def opened(before: str) -> subprocess.CompletedProcess[bytes]:
    """Open a reader in another process, after some lines that change what that process has."""
    options = Options.parse({"nameServer": "h:1", "topic": "orders"}, batch=True)
    reader = BatchReader(options, StructType([StructField("body", BinaryType())]))
    return subprocess.run(
        [sys.executable, "-c", OPEN.format(before=before)],
        input=cloudpickle.dumps(reader),  # type: ignore[no-untyped-call]
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        timeout=25,
        check=False,
    )


def test_a_reader_opens_where_everything_is_there() -> None:
    assert opened("").stdout == b"BatchReader ('orders',)\n"


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
def test_tasks_get_no_offsets_of_all_queues(name: str) -> None:
    """They are in the command of each task, and have their own offsets."""
    schema = StructType([StructField("body", BinaryType())])

    def size(queues: int) -> list[int]:
        offsets = json.dumps({"orders": {"broker-a": dict.fromkeys(map(str, range(queues)), 7)}})
        given = {"nameServer": "h:1", "topic": "orders", name: offsets}
        options = Options.parse(given, batch=True)
        readers = [BatchReader(options, schema), StreamReader(options, schema)]
        return [len(cloudpickle.dumps(one)) for one in readers]  # type: ignore[no-untyped-call]

    assert size(10_000) == size(1)


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("sys.modules['pyrmq'] = None", "format rocketmq cannot be used"),
        ("sys.modules['pyarrow'] = None", "format rocketmq cannot be used"),
        ("import pyrmq; pyrmq.__version__ = '0.0.1'", "has pyrmq 0.0.1, the driver has"),
    ],
)
def test_an_executor_that_lacks_something_says_so(before: str, text: str) -> None:
    done = opened(before)
    said = done.stderr.decode()
    assert done.returncode == 1
    assert text in said
    assert f"executor {os.uname().nodename} ({sys.executable})" in said
    assert f"install pyrmq-rocketmq[spark]=={VERSION} there" in said


def test_the_daemon_has_imported_what_workers_use() -> None:
    code = "from pyrmq.spark import daemon; daemon.preload(); import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=25,
        check=True,
    )
    wanted = {
        "pyspark.worker",
        "pyarrow",
        "pandas",
        "pyrmq.spark.reading.stream",
        "pyrmq.spark.writing.sink",
    }
    assert wanted <= set(done.stdout.split())


def test_an_executor_that_cannot_reach_an_advertised_address_says_so() -> None:
    given = {"nameServer": "127.0.0.1:1", "topic": "orders"}
    options = Options.parse(given, batch=True)
    part = Part("127.0.0.1:2", Range(Queue("orders", "broker-a", 0), 0, 5))
    schema = pa.schema([pa.field("body", pa.binary())])
    with pytest.raises(BrokerAway) as caught:
        list(batches(options, schema, [part], away_ms=300))
    text = str(caught.value)
    assert "127.0.0.1:2" in text
    assert f"on executor {socket.gethostname()}" in text
    assert "set brokerIP1 of the broker to one that it can" in text


@pytest.mark.parametrize(
    ("versions", "seconds", "text"),
    [
        (
            {"pyrmq": None, "pyrmq._core": None},
            0,
            f"install pyrmq-rocketmq[spark]=={VERSION} there",
        ),
        ({"pyarrow": "9.0.0"}, 0, "pyarrow is 9.0.0, the driver has"),
        ({}, 60, "its clock differs from the driver's by 60"),
        ({}, -60, "its clock differs from the driver's by -60"),
    ],
)
def test_the_doctor_says_what_an_executor_lacks(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None], seconds: float, text: str
) -> None:
    def answers(_: object, addresses: list[str], timeout: float) -> list[dict[str, Any]]:
        found = checks._check_environment(addresses, timeout)
        found["versions"] |= versions
        found["now"] += seconds
        return [found]

    monkeypatch.setattr(checks, "_advertised", lambda *_: ({}, []))
    monkeypatch.setattr(checks, "_from_executors", answers)
    with cluster() as running:
        driver, executor = checks.examine_executors(cast("SparkSession", None), running.name_server)
    assert (driver.role, driver.problems, executor.role) == ("driver", [], "executor")
    (problem,) = executor.problems
    assert text in problem
