"""Runs a pipeline: once over what is there, or again and again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq.pipeline.file import topic_options
from pyrmq.pipeline.frames import Frames, frames_of
from pyrmq.pipeline.report import Report, write_report
from pyrmq.spark.listener import listen

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pyrmq.pipeline.file import Pipeline
    from pyrmq.spark.figures import BatchFigures

__all__ = ["check", "run"]

_PAUSE_S = 0.2
_LISTENER_S = 10.0
_RAISED = "[USER_RAISED_EXCEPTION]"
_CALL = "An error occurred while calling"
_SHOWN = 500


def check(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Plan a pipeline and read one row, without writing anything.

    Returns:
        What was found: the sink's columns, whether a row is there, and topics that are missing.

    Raises:
        PipelineError: a step, a schema or a condition does not fit.
        RmqError: a topic or a server cannot be used.
    """
    from dataclasses import replace

    options = {**pipeline.source, "limit": "1"}
    options.pop("startingOffsets", None)
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"):
        options.pop(name, None)
    once = replace(pipeline, source=options, batch=True)
    frames_of(spark, pipeline)
    frames = frames_of(spark, once)
    _check_sink(pipeline, frames)
    seen = spark.read.format("rocketmq").options(**options).load().count()
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frames.rows.schema.fields)
    found = [f"columns: {columns}", f"source: {'a row is there' if seen else 'no row yet'}"]
    return found + [
        f"topic {topic} does not exist: create it (`pyrmq topic create {topic}`); a topic that the"
        " first message creates is not written exactly once"
        for topic in missing_topics(pipeline)
    ]


def missing_topics(pipeline: Pipeline) -> list[str]:
    """Return the topics that a pipeline writes to and that its name servers do not know.

    Raises:
        NameServerUnreachable: no name server answers.
    """
    from pyrmq._tables.options.sink_options import SinkOptions
    from pyrmq.admin import Admin

    targets = []
    if pipeline.sink["format"] == "topic":
        targets.append(topic_options(pipeline))
    if pipeline.reject not in {"drop", "fail"}:
        targets.append(_reject_options(pipeline))
    missing = []
    for given in targets:
        options = SinkOptions.parse(given, has_topic_column=True)
        with Admin(name_server=options.name_server, **options.security.arguments()) as admin:
            if options.topic is not None and options.topic not in admin.topics():
                missing.append(options.topic)
    return missing


def _check_sink(pipeline: Pipeline, frames: Frames) -> None:
    if pipeline.sink["format"] != "topic":
        names = {name.lower() for name in frames.rows.columns}
        for column in pipeline.sink.get("partitionBy", []):
            if str(column).lower() not in names:
                pipeline.fail(
                    "sink", "partitionBy", f"no column {column}: there are {sorted(names)}"
                )
        return
    from pyrmq._tables.messages import check_columns
    from pyrmq.errors import ConfigError

    types = {field.name: field.dataType.simpleString() for field in frames.rows.schema.fields}
    try:
        check_columns(types)
    except ConfigError as error:
        pipeline.fail("sink", "format", str(error))


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    every: str | None = None,
    on_batch: Callable[[BatchFigures], None] | None = None,
    stop: Event | None = None,
) -> Report:
    """Run a pipeline to its end, and write its report beside the checkpoint.

    Args:
        spark: a session.
        pipeline: from `load`.
        every: run without end, a batch so often (``10s``); None: until what is there is done.
        on_batch: gets the figures of each batch.
        stop: ends the run when another thread sets it, also in the middle of a batch: the next run
            begins with that batch. A batch read is not interrupted.

    Returns:
        What it did; its error is None if it succeeded.

    Raises:
        PipelineError: a step, a schema or a condition does not fit.

    Example:
        >>> run(spark, load("orders.toml")).rows  # doctest: +SKIP
        30000
    """
    _activate(spark)
    frames = frames_of(spark, pipeline)
    _check_sink(pipeline, frames)
    report = Report(pipeline.name)
    begun = time.monotonic()
    try:
        if pipeline.batch:
            _run_batch(pipeline, frames, report)
        else:
            _run_stream(spark, pipeline, frames, report, every, on_batch, stop)
    except KeyboardInterrupt:
        raise
    except Exception as error:  # noqa: BLE001 - the report says why the run failed
        report.error = _cause(error)
    finally:
        report.seconds = time.monotonic() - begun
        checkpoint = str(pipeline.checkpoint)
        if "://" not in checkpoint:
            write_report(report, Path(checkpoint) / "report")
    return report


def _activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread.

    Spark looks for a sink in Python only there, and a thread begins without one: it would say
    DATA_SOURCE_NOT_FOUND.
    """
    spark.createDataFrame([], "nothing INT")


def _run_batch(pipeline: Pipeline, frames: Frames, report: Report) -> None:
    if frames.rejected is not None:
        # Both writes are of one read: a second one would end elsewhere, and cost as much again.
        frames.source.persist()
    try:
        _batch_sink(pipeline, frames.rows)
        for observation in frames.counts:
            report.count(observation.get)
        if frames.rejected is not None:
            options = _reject_options(pipeline)
            frames.rejected.write.format("rocketmq").mode("append").options(**options).save()
    finally:
        if frames.rejected is not None:
            frames.source.unpersist()


def _batch_sink(pipeline: Pipeline, rows: DataFrame) -> None:
    kind, sink = pipeline.sink["format"], pipeline.sink
    if kind == "console":
        rows.show(100, truncate=False)
        return
    writer: DataFrameWriter = rows.write.mode(sink.get("mode", "append"))
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
    every: str | None,
    on_batch: Callable[[BatchFigures], None] | None,
    stop: Event | None,
) -> None:
    def told(figures: BatchFigures) -> None:
        if figures.query == pipeline.name:
            report.add(figures)
            last[0] = figures.batch
        if on_batch is not None and figures.rows:
            on_batch(figures)

    last = [-1]
    listener = listen(spark, on_batch=told)
    queries: list[StreamingQuery] = []
    try:
        queries.append(_start(pipeline, "main", frames.rows, every))
        if frames.rejected is not None:
            queries.append(_start(pipeline, "rejected", frames.rejected, every))
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
    """Wait for the last batch's figures: a listener hears of it a moment later."""
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


def _start(pipeline: Pipeline, part: str, rows: DataFrame, every: str | None) -> StreamingQuery:
    checkpoint = str(pipeline.checkpoint).rstrip("/")
    writer: DataStreamWriter = rows.writeStream.option("checkpointLocation", f"{checkpoint}/{part}")
    writer = writer.queryName(pipeline.name if part == "main" else f"{pipeline.name} {part}")
    if every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=every)
    if part == "rejected":
        options = {**_reject_options(pipeline), "delivery": "exactly-once"}
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


def _reject_options(pipeline: Pipeline) -> dict[str, str]:
    options = {
        "nameServer": topic_options(pipeline).get("nameServer", ""),
        "topic": pipeline.reject,
    }
    if "namespace" in pipeline.source:
        options["namespace"] = pipeline.source["namespace"]
    return {name: text for name, text in options.items() if text}


def _cause(error: BaseException) -> str:
    """Return the line that says what went wrong: ours, if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line.partition(_RAISED)[2].strip() for line in lines if _RAISED in line]
    ours = [line for line in lines if line.startswith("pyrmq.")]
    if raised or ours:
        return (raised or ours)[-1][:_SHOWN]
    if lines and lines[0].startswith(_CALL):
        # Py4J puts the Java exception into the second line.
        lines = [line.removeprefix(": ") for line in lines[1:]] or lines
    return (lines or [type(error).__name__])[0][:_SHOWN]
