"""The source on the real RocketMQ, of each requested version."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.spark import checks
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Site

pytestmark = [
    pytest.mark.spark,
    pytest.mark.interop,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),
]
NUMBERS = itertools.count(1)


@pytest.fixture
def topic(java_site: Site) -> Topic:
    """A new topic of four queues on the real broker."""
    return Topic(f"SparkReal{next(NUMBERS)}", *java_site).create()


def test_all_columns_hold_what_a_plain_pull_shows(spark: SparkSession, topic: Topic) -> None:
    checks.all_columns_hold_what_a_plain_pull_shows(spark, topic)


@pytest.mark.interop_all
def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    checks.a_stream_goes_on_from_its_checkpoint(spark, topic, tmp_path)


def test_every_way_gives_the_same_rows(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    checks.every_way_gives_the_same_rows(spark, topic, tmp_path)


def test_every_way_gives_the_same_rows_of_batches(
    spark: SparkSession, java_site: Site, version: str, tmp_path: Path
) -> None:
    if version.startswith("4."):
        pytest.skip("topics of batches came with RocketMQ 5")
    topic = Topic(f"SparkReal{next(NUMBERS)}", *java_site).create(1, "+queue.type=BatchCQ")
    checks.every_way_gives_the_same_rows_of_batches(spark, topic, tmp_path)


def test_times_are_exact(topic: Topic) -> None:
    checks.times_are_exact(topic)
