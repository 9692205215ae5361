"""Reads pieces of log files into Arrow batches, without a Python object per row."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq._core import LogScan
from pyrmq._tables.errors import OptionError
from pyrmq._tables.options.option_values import LARGEST
from pyrmq._tables.schema import known
from pyrmq.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyrmq._tables.logs.log_plan import LogPiece
    from pyrmq._tables.options.log_options import LogOptions

__all__ = ["log_batches"]

_log = logging.getLogger("pyrmq.spark")


def log_batches(
    options: LogOptions, schema: pa.Schema, pieces: Sequence[LogPiece], *, limit: int = 0
) -> Iterator[pa.RecordBatch]:
    """Read pieces and yield their messages as Arrow batches of the schema's columns.

    Args:
        options: what to read of the log, and batch sizes.
        schema: the columns, in order, by their own names or in another case.
        pieces: what to read, in this order.
        limit: rows after which to stop; 0: all.

    Raises:
        DataLossError: a file was deleted since the read was planned.
        OptionError: the directory does not exist on this machine.
        ProtocolError: the log is damaged, or a message cannot be read.
    """
    from pyrmq._client.arrow import batch

    columns = [known(name) for name in schema.names]
    left = limit or None
    for piece in pieces:
        scan = _open(options, piece, columns)
        if scan is None:
            continue
        while (block := scan.next_block()) is not None:
            _report(options, scan)
            rows = batch(block, schema)
            if left is not None:
                rows = rows.slice(0, left)
                left -= rows.num_rows
            yield rows
            if left == 0:
                return
        _report(options, scan)


def _open(options: LogOptions, piece: LogPiece, columns: list[str]) -> LogScan | None:
    since, until = options.since_ms, options.until_ms
    is_timed = since is not None or until is not None
    try:
        return LogScan(
            piece.file,
            piece.start,
            piece.end,
            columns,
            topics=set(piece.topics),
            tags=options.tags,
            stored_ms=(since or 0, LARGEST if until is None else until) if is_timed else None,
            queues=options.queues,
            deleted=piece.deleted,
            broker=options.broker_name,
            max_rows=options.max_batch_rows,
            max_bytes=options.max_batch_bytes,
            on_bad=options.on_bad,
            on_corrupt=options.on_corrupt,
            check_bodies=options.check_bodies,
        )
    except FileNotFoundError as error:
        if not Path(piece.file[0]).parent.is_dir():
            raise OptionError(
                "path",
                f"{options.directory} does not exist on this machine: driver and executors need"
                " it at the same path",
            ) from error
        what = f"{error}: the broker's retention deleted it after the read was planned"
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{what}; Spark's option failOnDataLoss=false continues without it, and a new call"
                " of arrow.read_log reads what is left"
            ) from error
        _log.warning("messages are gone and left out: %s", what)
        return None


def _report(options: LogOptions, scan: LogScan) -> None:
    for place in scan.take_corrupt():
        _log.warning("left out (onCorrupt=skip): %s", place)
    for bad in scan.take_unreadable():
        _log.warning("a message cannot be read (onBadMessage=%s): %s", options.on_bad, bad)
