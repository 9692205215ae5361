"""What runs in Spark's Python workers: record ranges to Arrow batches, no Python object a row.

A worker serves many tasks, so the connections live in the module and the long-lived objects are
taken out of the garbage collector's sight once: Spark collects after every task, which costs more
than a small task does.
"""

from __future__ import annotations

import gc
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from pyrmq._core import Connections, RangeReader
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
_connections: dict[int, Connections] = {}


class Part(NamedTuple):
    """A range and where its broker is.

    Example:
        >>> from pyrmq.spark.offsets import Queue
        >>> from pyrmq.spark.plan import Range
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
        limit: rows after which to stop, 0 for all.

    Raises:
        ConnectionLost: a broker was away for longer than ``timeoutMs``.
        BrokerError: a broker refused.
        DataLossError: a range has expired in part.
    """
    if not parts:
        return
    from pyrmq._client.arrow import batch

    _freeze_once()
    arrow = arrow_schema(schema)
    reader = _open(options, projection(schema), parts)
    left = limit or None
    while (block := reader.next_block()) is not None:
        for lost in reader.take_lost():
            _log.warning("messages are gone and left out: %s", lost)
        rows = batch(block, arrow)
        if left is not None:
            rows = rows.slice(0, left)
            left -= rows.num_rows
        yield rows
        if left == 0:
            return


def _open(options: Options, wanted: Sequence[str], parts: Sequence[Part]) -> RangeReader:
    return RangeReader(
        _connections_here(),
        [
            (
                part.address,
                part.range.queue.broker,
                part.range.queue.topic,
                part.range.queue.queue_id,
                part.range.start,
                part.range.end,
            )
            for part in parts
        ],
        list(wanted),
        group=options.group,
        tags=options.tags,
        max_rows=options.max_batch_rows,
        max_bytes=options.max_batch_bytes,
        pulls_in_flight=options.pulls_in_flight,
        timeout_ms=options.timeout_ms,
        skip_lost=not options.fail_on_data_loss,
    )


def _connections_here() -> Connections:
    """Return this process's connections: a worker is forked, and its parent's are not its own."""
    pid = os.getpid()
    if pid not in _connections:
        _connections.clear()
        _connections[pid] = Connections()
    return _connections[pid]


def _freeze_once() -> None:
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
