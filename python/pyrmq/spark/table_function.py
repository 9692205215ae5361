"""The table function ``rocketmq(...)``: a topic in plain SQL, without a view.

Spark runs it in one task. To read much, create a view of ``format("rocketmq")``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from pyrmq._tables.schema import ddl

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import UserDefinedTableFunction

__all__ = ["register_function"]


def register_function(spark: SparkSession) -> None:
    """Register the function in a session: ``SELECT * FROM rocketmq('orders', since => '1h')``.

    Arguments: topic; since and until as for `pyrmq.arrow.read`; tags; lines, the maximum number of
    rows; name_server, without it the driver's current NAMESRV_ADDR.
    """
    from pyspark.sql.functions import arrow_udtf

    known = os.environ.get("NAMESRV_ADDR", "")

    class RocketMQ:
        """Reads one topic."""

        def eval(
            self,
            topic: pa.Array,
            since: pa.Array = None,
            until: pa.Array = None,
            tags: pa.Array = None,
            lines: pa.Array = None,
            name_server: pa.Array = None,
        ) -> Iterator[pa.RecordBatch]:
            """Yield the topic's messages, in the default columns."""
            from pyrmq.spark.table_function import read_topic

            given = {"since": since, "until": until, "tags": tags, "limit": lines}
            values = {name: a[0].as_py() for name, a in given.items() if a is not None}
            names = known if name_server is None else name_server[0].as_py()
            yield from read_topic(names, topic[0].as_py(), values)

    made = cast("UserDefinedTableFunction", arrow_udtf(RocketMQ, returnType=ddl()))
    spark.udtf.register("rocketmq", made)


def read_topic(
    names: str, topic: str, values: dict[str, str | int | None]
) -> Iterator[pa.RecordBatch]:
    """Read a topic batch by batch.

    Args:
        names: name servers.
        topic: topic.
        values: since, until, tags and limit, if given.
    """
    import pyarrow as pa

    from pyrmq._tables.batch import planned
    from pyrmq._tables.options.option_values import ago
    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.schema import COLUMNS, DEFAULT, arrow_type
    from pyrmq._tables.worker import Part, batches

    options_of = {"since": "startingTimestamp", "until": "endingTimestamp"}
    given = {"nameServer": names, "topic": topic} | {
        options_of.get(name, name): ago(str(value)) or ""
        for name, value in values.items()
        if value is not None
    }
    options = Options.parse(given, batch=True)
    schema = pa.schema([pa.field(name, arrow_type(COLUMNS[name])) for name in DEFAULT])
    tasks, addresses = planned(options)
    parts = [Part(addresses[part.queue.broker], part) for task in tasks for part in task]
    yield from batches(options, schema, parts, away_ms=options.timeout_ms, limit=options.limit)
