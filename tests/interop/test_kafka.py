"""`pyrmq bench --kafka` on a real Kafka: the same loads with confluent-kafka."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyrmq.testing import cluster
from tests.interop import artifacts
from tests.interop.ours import python_path

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop_all


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """Yield the address of a Kafka node."""
    artifacts.require_java()
    if importlib.util.find_spec("confluent_kafka") is None:
        # `make interop` installs it: a skip would hide a failure to do so.
        pytest.fail("confluent-kafka is missing: install the extra `bench`", pytrace=False)
    from benches.e2e.rivals import servers

    with servers.kafka(heap_mb=400) as side:
        yield side.name_server


@pytest.mark.parametrize("what", ["produce", "consume", "roundtrip"])
def test_the_bench_measures_both(kafka: str, what: str) -> None:
    with cluster() as ours:
        options = ["-n", ours.name_server, "--kafka", kafka, "--count", "300", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "pyrmq", "bench", what, *options],
            env={**os.environ, "PYTHONPATH": python_path()},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["client"] for row in rows] == ["pyrmq", "confluent-kafka"]
    for row in rows:
        assert row["messages"] >= 300
        assert row["failed"] == 0
