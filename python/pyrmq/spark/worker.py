"""What runs in Spark's Python workers: record ranges to Arrow batches, no Python object a row.

A worker serves many tasks, so the connections live in the module and the long-lived objects are
taken out of the garbage collector's sight once: Spark collects after every task, which costs more
than a small task does.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, NamedTuple

from pyrmq.spark.schema import arrow_schema, projection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyrmq.spark.options import Options
    from pyrmq.spark.plan import Range

__all__ = ["Part", "batches"]

_log = logging.getLogger("pyrmq.spark")
_frozen = False


class Part(NamedTuple):
    """A range and where its broker is.

    Example:
        >>> from pyrmq.spark.offsets import Queue
        >>> Part("127.0.0.1:10911", Range(Queue("orders", "broker-a", 0), 5, 9)).range.rows
        4
    """

    address: str
    range: Range


def batches(
    options: Options, schema: StructType, parts: Sequence[Part], *, limit: int = 0
) -> Iterator[pa.RecordBatch]:
    """Read ranges and yield them as Arrow batches of the schema's columns.

    Args:
        options: batch sizes, tags, time-outs.
        schema: the columns, in order.
        parts: what to read, in this order.
        limit: stop after so many rows, 0 for all.

    Raises:
        ClusterError: a broker was away for longer than ``timeoutMs``, or refused.
        DataLossError: a range has expired in part.
    """
    if not parts:
        return
    import pyarrow as pa

    from pyrmq.spark import columns
    from pyrmq.spark.native import RangeReader

    _freeze_once()
    wanted = projection(schema)
    arrow = arrow_schema(schema)
    left = limit or None
    with RangeReader(options, wanted, parts) as reader:
        for block in reader:
            batch = pa.RecordBatch.from_arrays(columns.arrays(block, arrow), schema=arrow)
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield batch
            if left == 0:
                return


def _freeze_once() -> None:
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
