"""The last batch of a pipeline in a Delta or Iceberg table.

Both record with each write the query's id and the number of its batch, and leave out a batch that
the table has. So a checkpoint that was restored to an earlier batch would lose rows, as with files.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from pyrmq.pipeline.resuming import checkpoint_folder, refuse_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyrmq.pipeline.file import Pipeline

__all__ = ["check_table_position"]

_log = logging.getLogger("pyrmq.spark")


def check_table_position(spark: SparkSession, pipeline: Pipeline) -> None:
    """Refuse to start when the table of the sink is ahead of the checkpoint.

    A new checkpoint is a new query to a table: it appends everything that the source still has.

    Raises:
        PipelineError: the checkpoint was restored, and the table was not.
    """
    kind = pipeline.sink["format"]
    if pipeline.batch or kind not in {"delta", "iceberg"}:
        return
    folder = checkpoint_folder(pipeline)
    query = json.loads(folder.read("main/metadata") or "{}").get("id")
    if query is None:
        return
    from pyspark.errors import AnalysisException

    try:
        sent = _last_batch(_writes(spark, pipeline), query)
    except AnalysisException as error:
        # The first batch creates the table, and may have failed before that.
        _log.debug("no table yet: %s", error)
        return
    planned = folder.newest("main/offsets")
    if sent is None or (planned is not None and planned >= sent):
        return
    key = "path" if kind == "delta" else "table"
    refuse_position(pipeline, key, f"table {pipeline.sink[key]} has", sent, planned)


def _writes(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """Return query and batch of each write, from the table's own log."""
    if pipeline.sink["format"] == "delta":
        path = str(pipeline.sink["path"]).replace("`", "``")
        history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`")
        return history.selectExpr(
            "operationParameters['queryId'] AS query", "operationParameters['epochId'] AS batch"
        )
    snapshots = spark.table(f"{pipeline.sink['table']}.snapshots")
    return snapshots.selectExpr(
        "summary['spark.sql.streaming.queryId'] AS query",
        "summary['spark.sql.streaming.epochId'] AS batch",
    )


def _last_batch(writes: DataFrame, query: str) -> int | None:
    from pyspark.sql import functions as F

    of_query = writes.where(F.col("query") == query)
    row = of_query.select(F.max(F.col("batch").cast("bigint")).alias("last")).first()
    return None if row is None or row["last"] is None else int(row["last"])
