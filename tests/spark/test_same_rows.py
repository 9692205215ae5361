"""Batch, stream, log files and `pyrmq.arrow` agree about all that a topic can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyrmq.testing import cluster
from tests.spark import checks
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),
]


def test_every_way_gives_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    with cluster(store=tmp_path / "store") as ours:
        topic = Topic("Everything", ours.name_server, ours.broker.address).create()
        checks.every_way_gives_the_same_rows(spark, topic, tmp_path)
        topic.connections.close()
