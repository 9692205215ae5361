"""Reads a directory of log files for Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from pyrmq._tables import worker
from pyrmq._tables.errors import OffsetError
from pyrmq._tables.logs.log_plan import LogPiece, plan
from pyrmq._tables.logs.log_worker import log_batches
from pyrmq.spark.reading.schema import arrow_schema, projection
from pyrmq.spark.reading.stream import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyrmq._tables.options.log_options import LogOptions

__all__ = ["LogBatchReader", "LogPartition", "LogStreamReader"]

_VERSION = 1


class LogPartition(InputPartition):
    """One task's pieces."""

    def __init__(self, pieces: tuple[LogPiece, ...]) -> None:
        super().__init__(pieces)


def _partitions(options: LogOptions, pieces: list[LogPiece]) -> list[InputPartition]:
    """Make a task of each piece, or of several small ones."""
    tasks: list[list[LogPiece]] = []
    size = 0
    for piece in pieces:
        length = piece.end - piece.start
        if tasks and (options.limit or size + length <= options.max_partition_bytes):
            tasks[-1].append(piece)
            size += length
        else:
            tasks.append([piece])
            size = length
    return [LogPartition(tuple(task)) for task in tasks]


class LogBatchReader(DataSourceReader):
    """Reads the content of a directory, once."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        projection(schema)

    def partitions(self) -> list[InputPartition]:
        """Cut the log into tasks.

        Raises:
            OptionError: the directory holds no log.
            ProtocolError: the log is damaged, and option onCorrupt is fail.
        """
        pieces, _ = plan(self.options)
        return _partitions(self.options, pieces)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield one task's messages as Arrow batches; Spark 4.1 has a task without a partition."""
        pieces: tuple[LogPiece, ...] = () if partition is None else partition.value or ()
        worker.freeze_once()
        schema = arrow_schema(self.schema)
        return log_batches(self.options, schema, pieces, limit=self.options.limit)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a directory that grows, through its broker or by copies.

    Offsets are positions of the log: ``{"@start": 0, "@v": 1, "position": 4096}``. ``@start`` is
    only in the first batch: Spark requests the start again if that batch was planned but not
    finished, and "latest" has moved by then.
    """

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._initial: int | None = None
        self._planned: dict[str, Any] | None = None
        self._frozen: int | None = None
        projection(schema)

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        if self._initial is None:
            self._initial = (
                plan(self.options)[1] if self.options.from_end else _oldest(self.options)
            )
        return {"@v": _VERSION, "position": self._initial}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Return the end of the next batch; `start` itself when there is nothing new.

        Spark 4.1 passes no start. Its position is the end that was planned last. Before the first
        end it may be anywhere, so it gets everything: no end is before its position.
        """
        at = start or self._planned or self.initialOffset()
        rows = getattr(limit, "max_rows", None)
        if start is None and self._planned is None:
            rows = 0
        elif rows is None:
            is_unlimited = isinstance(limit, ReadAllAvailable)
            rows = 0 if is_unlimited else self.options.max_offsets_per_trigger
        position = _position(at)
        _, end = plan(self.options, start=position, end=self._frozen, most_records=rows)
        if end == position:
            time.sleep(self.options.offset_refresh_ms / 1000)
            return at
        self._planned = {"@v": _VERSION, "position": end}
        if self._initial is not None and position == self._initial and "@start" not in at:
            self._planned = {"@start": position, **self._planned}
        return self._planned

    def getDefaultReadLimit(self) -> ReadAllAvailable | ReadMaxRows:
        """Return the limit of ``maxOffsetsPerTrigger``: records of the log, of all topics."""
        rows = self.options.max_offsets_per_trigger
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at the current end."""
        self._frozen = plan(self.options)[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut a batch into tasks."""
        begin = _position(start)
        if begin == self._initial:
            # Spark requested the start again, as no batch has finished.
            begin = end.get("@start", begin)
        pieces, _ = plan(self.options, start=begin, end=_position(end))
        return _partitions(self.options, pieces)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's messages as Arrow batches."""
        worker.freeze_once()
        return log_batches(self.options, arrow_schema(self.schema), partition.value or ())


def _oldest(options: LogOptions) -> int:
    """Return the position of the log's first byte, without reading the log."""
    from pyrmq._tables.logs.log_plan import LogDirectory

    files = LogDirectory(options.directory).files()
    return files[0][1] if files else 0


def _position(written: dict[str, Any]) -> int:
    position = written.get("position")
    if written.get("@v") != _VERSION or not isinstance(position, int):
        raise OffsetError(
            f"the checkpoint has other offsets than those of a directory: {written!r:.200}; use a"
            " separate checkpoint directory for each query"
        )
    return position
