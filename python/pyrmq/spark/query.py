"""SQL over topics: each topic that a query names becomes a view with the columns that it uses.

Spark does not pass a Python source the columns that a query needs. So the query is planned twice:
first over all columns, then over those that its optimized plan uses. Planning reads no message.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

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

_log = logging.getLogger("pyrmq.spark")
_CHEAPEST = "queueId"
_SET_OPERATIONS = {"Union", "Intersect", "Except"}
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def sql(spark: SparkSession, text: str, options: Mapping[str, str]) -> DataFrame:
    """Run a query over topics.

    Args:
        spark: a session; it gets temporary views with the topics' names.
        text: SQL. A topic is named like a table, in backticks if its name has characters other than
            letters, digits and underscores.
        options: options of ``format("rocketmq")`` for all topics, without topic and columns; with
            ``path`` the topics are those of a directory of log files.

    Raises:
        OptionError: a wrong option.
        ConfigError: the query names no topic, or two that differ only in case.

    Example:
        >>> sql(spark, "SELECT tags, count(*) FROM orders GROUP BY tags", {})  # doctest: +SKIP
    """
    from pyspark.errors import AnalysisException

    there, where, shown_by = _topics(options)
    topics = _named(text, there)
    if not topics:
        raise ConfigError(f"the query names no topic of {where}: {shown_by}")
    _make_views(spark, topics, options, dict.fromkeys(topics, tuple(COLUMNS)))
    whole = spark.sql(text)
    all_columns = dict.fromkeys(topics, tuple(COLUMNS))
    columns = used_columns(whole, topics, text)
    if columns == all_columns:
        return whole
    _make_views(spark, topics, options, columns)
    try:
        narrow = spark.sql(text)
        if narrow.schema == whole.schema:
            return narrow
    except AnalysisException as error:
        _log.debug("the query is planned with all columns: %s", error)
    _make_views(spark, topics, options, all_columns)
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


def used_columns(frame: DataFrame, topics: Iterable[str], text: str) -> dict[str, tuple[str, ...]]:
    """Return the columns that a query needs of its topics, as one list for all topics.

    A name that several topics have counts for all of them. Names in the text are needed to plan it,
    even if the optimized plan does not use them. `SELECT *` and set operations need all columns
    that they output.
    """
    used = _used_by_plan(frame)
    words = {word.lower() for word in _words(text)}
    columns = tuple(name for name in COLUMNS if name in used or name.lower() in words)
    return dict.fromkeys(topics, columns or (_CHEAPEST,))


def _used_by_plan(frame: DataFrame) -> set[str]:
    everything = set(COLUMNS)
    if not hasattr(frame, "_jdf"):
        # Spark Connect does not show plans.
        return everything
    plan = frame._jdf.queryExecution().optimizedPlan()
    names: dict[int, str] = {}
    used = set()
    plans = [plan, *_items(plan.subqueriesAll())]
    for top in plans:
        used |= {at for at, _ in _attributes(top.output())}
        nodes = [top]
        while nodes:
            node = nodes.pop()
            children = _items(node.children())
            if node.nodeName() in _SET_OPERATIONS:
                return everything
            if children:
                used |= {at for at, _ in _attributes(node.references().toSeq())}
                nodes += children
            else:
                names.update(_attributes(node.output()))
    return {name for at, name in names.items() if at in used}


def _items(scala: Any) -> list[Any]:  # noqa: ANN401 - a Seq of Scala's
    return [scala.apply(number) for number in range(scala.size())]


def _attributes(scala: Any) -> list[tuple[int, str]]:  # noqa: ANN401 - a Seq of Scala's
    return [(item.exprId().id(), item.name()) for item in _items(scala)]


def _words(text: str) -> set[str]:
    """Return the names in a text, except those in literals."""
    plain = _LITERAL.sub(" ", text)
    return {word for match in re.findall(r"`([^`]+)`|\b(\w+)\b", plain) for word in match if word}


def _named(text: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that a query names, in their exact spelling or else in another case.

    Raises:
        ConfigError: a name fits several topics, which are one table for Spark.
    """
    words = _words(text)
    by_lower: dict[str, list[str]] = {}
    for topic in sorted(topics):
        by_lower.setdefault(topic.lower(), []).append(topic)
    named = []
    for lower in sorted({word.lower() for word in words} & by_lower.keys()):
        alike = by_lower[lower]
        exact = [topic for topic in alike if topic in words]
        chosen = exact or alike
        if len(chosen) > 1:
            raise ConfigError(
                f"topics {' and '.join(chosen)} differ only in case, and Spark takes them for one"
                " table: name one of them in its exact spelling, or load them with spark.read"
            )
        named += chosen
    return named


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
