"""SQL over topics: each topic that a query names becomes a view, with the columns that it uses.

Spark does not tell a Python source which columns a query needs. So the query is planned twice: over
all columns first, and over those that its optimized plan uses then. Planning reads no message.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyrmq._tables.logs.log_plan import plan
from pyrmq._tables.options.log_options import LogOptions, directory_of
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.schema import COLUMNS
from pyrmq.admin import Admin
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["sql", "used_columns"]

_CHEAPEST = "queueId"
_LEAF = re.compile(r"RelationV2|BatchScan|DataSourceV2")
_ATTRIBUTE = re.compile(r"(\w+)#(\d+)")
_SET_OPERATIONS = re.compile(r"^\W*(Union|Intersect|Except)\b", re.MULTILINE)


def sql(spark: SparkSession, text: str, options: Mapping[str, str]) -> DataFrame:
    """Run a query over topics.

    Args:
        spark: a session; temporary views of the topics' names are made in it.
        text: SQL. A topic is named like a table, in backticks if it has other characters than
            letters, digits and underscores.
        options: options of ``format("rocketmq")`` for all topics, without topic and columns; with
            ``path`` the topics are those of a directory of log files.

    Raises:
        OptionError: a wrong option.
        ConfigError: the query names no topic.

    Example:
        >>> sql(spark, "SELECT tags, count(*) FROM orders GROUP BY tags", {})  # doctest: +SKIP
    """
    there, where, shown_by = _topics(options)
    topics = _named(text, there)
    if not topics:
        raise ConfigError(f"the query names no topic of {where}: {shown_by}")
    _make_views(spark, topics, options, dict.fromkeys(topics, tuple(COLUMNS)))
    whole = spark.sql(text)
    columns = used_columns(whole, topics)
    _make_views(spark, topics, options, columns)
    return spark.sql(text)


def _topics(options: Mapping[str, str]) -> tuple[Iterable[str], str, str]:
    """Return the topics that can be queried, where they are, and how to see them."""
    directory = directory_of(options)
    if directory is not None:
        pieces, _ = plan(LogOptions.parse(options, batch=True))
        found = sorted({topic for piece in pieces for topic in piece.topics})
        return found, directory, f"it has {', '.join(found) or 'none'}"
    checked = Options.parse({**options, "topic": "any"}, batch=True)
    with Admin(name_server=checked.name_server, **checked.security.arguments()) as admin:
        return admin.topics(), checked.name_server, "`pyrmq topic list` shows them"


def used_columns(frame: DataFrame, topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the columns that a query needs of its topics: one list for all that it reads.

    A name that several topics have counts for all of them. `SELECT *` and set operations need
    whatever they output.
    """
    if not hasattr(frame, "_jdf"):
        # Spark Connect shows no plan.
        return dict.fromkeys(topics, tuple(COLUMNS))
    execution = frame._jdf.queryExecution()
    plan = execution.optimizedPlan()
    text = str(plan.toString())
    if _SET_OPERATIONS.search(text):
        return dict.fromkeys(topics, tuple(COLUMNS))
    leaves = [line for line in text.splitlines() if _LEAF.search(line)]
    others = [line for line in text.splitlines() if not _LEAF.search(line)]
    of_leaves = {number: name for line in leaves for name, number in _ATTRIBUTE.findall(line)}
    shown = "\n".join([*others, str(plan.output().toString())])
    used = {of_leaves[number] for _, number in _ATTRIBUTE.findall(shown) if number in of_leaves}
    columns = tuple(name for name in COLUMNS if name in used) or (_CHEAPEST,)
    return dict.fromkeys(topics, columns)


def _named(text: str, topics: Iterable[str]) -> list[str]:
    words = {word.lower() for word in re.findall(r"`([^`]+)`|\b(\w+)\b", text) for word in word}
    return [topic for topic in sorted(topics) if topic.lower() in words]


def _make_views(
    spark: SparkSession,
    topics: Iterable[str],
    options: Mapping[str, str],
    columns: Mapping[str, tuple[str, ...]],
) -> None:
    for topic in topics:
        reader = spark.read.format("rocketmq").options(**options)
        wanted = ",".join(columns[topic])
        frame = reader.option("topic", topic).option("columns", wanted).load()
        frame.createOrReplaceTempView(f"`{topic}`")
