"""Log files as tables, without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyrmq._tables.errors import OptionError
from pyrmq._tables.logs.log_plan import plan
from pyrmq._tables.logs.log_worker import log_batches
from pyrmq._tables.options.log_options import LogOptions
from pyrmq.arrow.arguments import moment, schema_of
from pyrmq.arrow.progress import shown

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from datetime import datetime

__all__ = ["read_log", "scan_log"]


def read_log(
    directory: str | os.PathLike[str],
    topic: str | Sequence[str] | None = None,
    *,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    columns: Sequence[str] | None = None,
    tags: str = "*",
    limit: int = 0,
    broker_name: str | None = None,
    on_corrupt: str = "fail",
    check_crc: bool = True,
    progress: bool = True,
) -> pa.Table:
    """Read the messages of a broker's log files as a table. No broker is needed; one may run.

    The rows are those of a read through the broker: without half messages, with batches unpacked
    and bodies decompressed. Read a topic that was deleted from a Java broker with care: its
    messages stay in the log.

    Args:
        directory: a broker's `storePathRootDir` or `storePathCommitLog`, of Apache RocketMQ from
            4.6 on or of pyrmq.
        topic: a topic, or several. None: all but system topics.
        since: only messages stored since: a time ago (``"1h"``, ``"30m"``, ``"7d"``), ISO 8601 with
            a zone, a datetime with a zone, or milliseconds since 1970.
        until: only messages stored before.
        columns: those of docs/spark.md. None: the default ones.
        tags: ``A || B``.
        limit: maximum number of rows; 0: all.
        broker_name: value of column ``brokerName``; log files do not name their broker.
        on_corrupt: if a record cannot be read: ``fail``, or ``skip`` to the next valid record, with
            a warning in the log ``pyrmq.spark``.
        check_crc: compare bodies with their checksums.
        progress: show the progress of a read of more than a second, if standard error is a
            terminal.

    Raises:
        ConfigError: the directory has no log, or an argument is not valid.
        ProtocolError: the log is damaged, or a message cannot be read.
        PermissionError: a file or directory may not be read.

    Example:
        >>> read_log("/data/store", "orders", columns=["tags", "body"])  # doctest: +SKIP
    """
    return scan_log(
        directory,
        topic,
        since=since,
        until=until,
        columns=columns,
        tags=tags,
        limit=limit,
        broker_name=broker_name,
        on_corrupt=on_corrupt,
        check_crc=check_crc,
        progress=progress,
    ).read_all()


def scan_log(
    directory: str | os.PathLike[str],
    topic: str | Sequence[str] | None = None,
    *,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    columns: Sequence[str] | None = None,
    tags: str = "*",
    limit: int = 0,
    broker_name: str | None = None,
    on_corrupt: str = "fail",
    check_crc: bool = True,
    progress: bool = False,
) -> pa.RecordBatchReader:
    """Read log files batch by batch; arguments and errors as `read_log`.

    The range is fixed when this is called. Records are read as batches are taken.

    Example:
        >>> duckdb.from_arrow(scan_log("/data/store", "orders"))  # doctest: +SKIP
    """
    topics = [topic] if isinstance(topic, str) else [*(topic or ())]
    path = str(directory)
    given = {
        # For Spark a bare name is a topic; here it is a directory.
        "path": path if "/" in path else f"./{path}",
        "topic": ",".join(topics),
        "tags": tags,
        "limit": str(limit),
        "brokerName": broker_name or "",
        "onCorrupt": on_corrupt,
        "checkCRC": str(check_crc).lower(),
        **moment("startingTimestamp", since),
        **moment("endingTimestamp", until),
    }
    if topic is not None and not topics:
        raise OptionError("topic", "an empty list names no topic; None reads all")
    options = LogOptions.parse(given, batch=True)
    schema = schema_of(columns)
    pieces, _ = plan(options)
    rows = log_batches(options, schema, pieces, limit=limit)
    if progress:
        rows = shown(rows, sum(piece.records for piece in pieces))
    return pa.RecordBatchReader.from_batches(schema, rows)
