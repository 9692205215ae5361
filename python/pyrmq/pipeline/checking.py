"""Checks a pipeline before it runs: its frames, the columns of its sink, its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.errors import RmqError
from pyrmq.pipeline.errors import cause_of
from pyrmq.pipeline.frames import Frames, frames_of
from pyrmq.pipeline.options import reject_options, topic_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyrmq.pipeline.file import Pipeline

__all__ = ["check", "check_sink_columns", "missing_topics"]

_OF_STREAMS = (
    *("startingOffsets", "commitToGroup"),
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"),
)


def check(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Plan a pipeline and read one row, without writing anything.

    Returns:
        What was found: the sink's columns, whether there is a row, and missing topics.

    Raises:
        PipelineError: a step, a schema or a condition is wrong.
        RmqError: a topic or a server cannot be used.
    """
    from dataclasses import replace

    from pyspark.errors import PySparkException

    options = {**pipeline.source, "limit": "1"}
    of_streams = {name.lower() for name in _OF_STREAMS}
    options = {name: text for name, text in options.items() if name.lower() not in of_streams}
    once = replace(pipeline, source=options, batch=True)
    frames_of(spark, pipeline)
    frames = frames_of(spark, once)
    check_sink_columns(pipeline, frames)
    try:
        seen = spark.read.format("rocketmq").options(**options).load().count()
    except PySparkException as error:
        raise RmqError(cause_of(error)) from error
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frames.rows.schema.fields)
    found = [f"columns: {columns}", f"source: {'it has rows' if seen else 'no row yet'}"]
    return found + [
        f"topic {topic} does not exist: create it (`pyrmq topic create {topic}`); rejected rows of"
        " a stream, and delivery=exactly-once, are refused without it"
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
        targets.append(reject_options(pipeline))
    missing = []
    for given in targets:
        options = SinkOptions.parse(given, has_topic_column=True)
        with Admin(name_server=options.name_server, **options.security.arguments()) as admin:
            if options.topic is not None and options.topic not in admin.topics():
                missing.append(options.topic)
    return missing


def check_sink_columns(pipeline: Pipeline, frames: Frames) -> None:
    """Refuse rows that the sink cannot accept.

    Raises:
        PipelineError: a column is missing, unknown, or of another type.
    """
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
