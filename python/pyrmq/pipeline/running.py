"""Runs a pipeline: once over the messages that exist, or continuously."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq.pipeline.checking import check_sink_columns
from pyrmq.pipeline.checkpoint import running_note
from pyrmq.pipeline.errors import PipelineError, cause_of
from pyrmq.pipeline.frames import Frames, frames_of
from pyrmq.pipeline.options import period_ms, reject_options, topic_options
from pyrmq.pipeline.report import Report, write_report
from pyrmq.pipeline.resuming import check_rules, check_sink_position
from pyrmq.pipeline.table_position import check_table_position
from pyrmq.spark.progress.listener import listen

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pyrmq.pipeline.file import Pipeline
    from pyrmq.spark.progress.figures import BatchFigures

__all__ = ["run"]

INTERRUPTED = "it was interrupted"
_PAUSE_S = 0.2
_LISTENER_S = 10.0
_DEDUPE = "dedupeWithinWatermark"


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    every: str | None = None,
    on_batch: Callable[[BatchFigures], None] | None = None,
    stop: Event | None = None,
) -> Report:
    """Run a pipeline to its end, and write its report next to the checkpoint.

    Args:
        spark: a session.
        pipeline: from `load`.
        every: run continuously, with a batch per interval (``10s``); None: end after the messages
            that exist.
        on_batch: gets the figures of each batch.
        stop: ends the run when another thread sets it, even in the middle of a batch, with which
            the next run begins. A batch read is not interrupted.

    Returns:
        The report; its error is None if the run succeeded.

    Raises:
        PipelineError: a step, a schema or a condition is wrong, or the sink or the rules do not
            match the checkpoint.
        ConfigError: `every` is not a duration.

    Example:
        >>> run(spark, load("orders.toml")).rows  # doctest: +SKIP
        30000
    """
    period = None if every is None else period_ms(every)
    report = Report(pipeline.name)
    begun = time.monotonic()
    with running_note(pipeline):
        try:
            _activate(spark)
            frames = frames_of(spark, pipeline)
            check_sink_columns(pipeline, frames)
            if pipeline.batch:
                _run_batch(pipeline, frames, report)
            else:
                check_sink_position(pipeline)
                check_table_position(spark, pipeline)
                check_rules(pipeline)
                _run_stream(spark, pipeline, frames, report, period, on_batch, stop)
                report.error = _dropped_rows(report)
        except KeyboardInterrupt:
            report.error = INTERRUPTED
            raise
        except PipelineError as error:
            report.error = str(error)
            raise
        except Exception as error:  # noqa: BLE001 - the report says why the run failed
            report.error = cause_of(error)
        finally:
            report.seconds = time.monotonic() - begun
            checkpoint = str(pipeline.checkpoint)
            if "://" not in checkpoint:
                write_report(report, Path(checkpoint) / "report")
    return report


def _dropped_rows(report: Report) -> str | None:
    """Rows that a deduplication drops as too late may not be duplicates: their keys are unknown."""
    rows = report.dropped.get(_DEDUPE, 0)
    if not rows:
        return None
    return (
        f"{rows:,} rows were older than the newest one by more than `within` of deduplicate, and"
        " were dropped although they may not be duplicates: raise within above the time that the"
        " queues are apart, or process a backlog in one batch (maxOffsetsPerTrigger = 0)"
    )


def _activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread.

    Spark looks for a Python sink only there, and a thread starts without one: it would report
    DATA_SOURCE_NOT_FOUND.
    """
    spark.createDataFrame([], "nothing INT")


def _run_batch(pipeline: Pipeline, frames: Frames, report: Report) -> None:
    if frames.rejected is not None:
        # Both writes use one read: a second one would end elsewhere, and cost as much again.
        frames.source.persist()
    try:
        _batch_sink(pipeline, frames.rows)
        for observation in frames.counts:
            report.count(observation.get)
        if frames.rejected is not None:
            options = reject_options(pipeline)
            frames.rejected.write.format("rocketmq").mode("append").options(**options).save()
    finally:
        if frames.rejected is not None:
            frames.source.unpersist()


def _batch_sink(pipeline: Pipeline, rows: DataFrame) -> None:
    kind, sink = pipeline.sink["format"], pipeline.sink
    if kind == "console":
        rows.show(100, truncate=False)
        return
    # A batch reads everything each time: an append would store earlier rows twice.
    mode = "append" if kind == "topic" else "errorifexists"
    writer: DataFrameWriter = rows.write.mode(sink.get("mode", mode))
    writer = writer.options(**sink.get("options", {}))
    if sink.get("partitionBy"):
        writer = writer.partitionBy(*sink["partitionBy"])
    if kind == "topic":
        writer.format("rocketmq").options(**topic_options(pipeline)).save()
    elif kind == "iceberg":
        writer.format("iceberg").saveAsTable(sink["table"])
    else:
        writer.format(kind).save(sink["path"])


def _run_stream(
    spark: SparkSession,
    pipeline: Pipeline,
    frames: Frames,
    report: Report,
    period: int | None,
    on_batch: Callable[[BatchFigures], None] | None,
    stop: Event | None,
) -> None:
    def on_batch_figures(figures: BatchFigures) -> None:
        if figures.query == pipeline.name:
            report.add(figures)
            last[0] = figures.batch
        if on_batch is not None and figures.rows:
            on_batch(figures)

    last = [-1]
    listener = listen(spark, on_batch=on_batch_figures)
    queries: list[StreamingQuery] = []
    try:
        queries.append(_start(pipeline, "main", frames.rows, period))
        if frames.rejected is not None:
            queries.append(_start(pipeline, "rejected", frames.rejected, period))
        while any(query.isActive for query in queries):
            for query in queries:
                _raise_failure(query)
            if stop is not None and stop.wait(_PAUSE_S):
                return
            if stop is None:
                time.sleep(_PAUSE_S)
        for query in queries:
            _raise_failure(query)
        _await_listener(queries[0], last)
    finally:
        for query in queries:
            query.stop()
        listener.close()


def _await_listener(query: StreamingQuery, last: list[int]) -> None:
    """Wait for the last batch's figures, which a listener gets a moment later."""
    progress: Any = query.lastProgress
    deadline = time.monotonic() + _LISTENER_S
    while progress is not None and last[0] < progress["batchId"]:
        if time.monotonic() >= deadline:
            return
        time.sleep(0.05)


def _raise_failure(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise error


def _start(pipeline: Pipeline, part: str, rows: DataFrame, period: int | None) -> StreamingQuery:
    checkpoint = str(pipeline.checkpoint).rstrip("/")
    writer: DataStreamWriter = rows.writeStream.option("checkpointLocation", f"{checkpoint}/{part}")
    writer = writer.queryName(pipeline.name if part == "main" else f"{pipeline.name} {part}")
    if period is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{period} milliseconds")
    if part == "rejected":
        options = {**reject_options(pipeline), "delivery": "exactly-once"}
        return writer.format("rocketmq").options(**options).start()
    kind, sink = pipeline.sink["format"], pipeline.sink
    writer = writer.options(**sink.get("options", {})).outputMode(sink.get("mode", "append"))
    if sink.get("partitionBy"):
        writer = writer.partitionBy(*sink["partitionBy"])
    if kind == "topic":
        return writer.format("rocketmq").options(**topic_options(pipeline)).start()
    if kind == "iceberg":
        return writer.format("iceberg").toTable(sink["table"])
    if kind == "console":
        return writer.format("console").option("truncate", "false").start()
    return writer.format(kind).start(sink["path"])
