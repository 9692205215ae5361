"""A frame or view that is used more than once: Spark keeps the read that it planned first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.spark.topic import Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.topic import Topic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore"),
]


def test_a_view_answers_each_query_in_full_and_keeps_its_end(
    spark: SparkSession, topic: Topic
) -> None:
    """Also where Spark may push conditions down: a reader that took them would leave rows out."""
    topic.send(0, [Sent(b"x", tags="ab"[n % 2]) for n in range(10)])
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")

    def count(condition: str, name: str = "used_thrice") -> int:
        row = spark.sql(f"SELECT count(*) FROM {name} WHERE {condition}").first()
        assert row is not None
        return int(row[0])

    try:
        topic.read(spark).createOrReplaceTempView("used_thrice")
        assert [count("tags = 'a'"), count("true"), count("tags = 'b'")] == [5, 10, 5]
        topic.send(0, [Sent(b"x", tags="a")])
        assert count("true") == 10
        topic.read(spark).createOrReplaceTempView("loaded_again")
        assert count("true", "loaded_again") == 11
        with pytest.raises(Exception, match="filterPushdown: is refused"):
            topic.read(spark, filterPushdown="true").count()
    finally:
        spark.conf.unset(setting)
