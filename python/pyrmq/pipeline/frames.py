"""Makes a pipeline's frames: source, JSON, steps, checks. Errors name the line of their cause."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyrmq.errors import RmqError
from pyrmq.pipeline.modules import send_modules
from pyrmq.spark.json_bodies import REASON, unfolded, with_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, Observation, SparkSession

    from pyrmq.pipeline.file import Pipeline, Step

__all__ = ["Frames", "frames_of"]

_WHY = "__why"
_INPUT = "input"
_MAX_BYTES = (4 << 20) - (64 << 10)
"""Bytes of a body that leave space for properties in a message of the default size."""


class StepError(RmqError):
    """A Python step raised an error.

    Example:
        >>> raise StepError("shop.steps:enrich raised KeyError: 'total'")
        Traceback (most recent call last):
        ...
        pyrmq.pipeline.frames.StepError: shop.steps:enrich raised KeyError: 'total'
    """


@dataclass
class Frames:
    """The frames that a pipeline writes.

    Attributes:
        rows: rows for the sink.
        rejected: messages for the topic of rejected rows, or None.
        counts: observations of a batch read; a stream has them in its progress.
        source: the messages as they were read.
    """

    rows: DataFrame
    source: DataFrame
    rejected: DataFrame | None = None
    counts: list[Observation] = field(default_factory=list)


def frames_of(spark: SparkSession, pipeline: Pipeline) -> Frames:
    """Make the frames; nothing is read yet.

    Raises:
        PipelineError: a schema, a step or a condition does not match its input.
    """
    with _at(pipeline, "source", ""):
        reader = spark.read if pipeline.batch else spark.readStream
        source = frame = reader.format("rocketmq").options(**pipeline.source).load()
    counts: list[Observation] = []
    unreadable: DataFrame | None = None
    if pipeline.json is not None:
        with _at(pipeline, "source", "json"):
            unreadable = with_reason(frame, pipeline.json)
            frame = _readable(pipeline, unreadable, counts)
    for number, step in enumerate(pipeline.steps):
        with _at(pipeline, "step", "sql" if step.sql is not None else "python", number):
            frame = _stepped(spark, pipeline, step, frame)
    with _at(pipeline, "quality", "where"):
        judged = frame.withColumn(_WHY, _judgement(pipeline))
    rows = _passed(pipeline, judged, counts)
    if pipeline.reject in {"drop", "fail"}:
        return Frames(rows, source, None, counts)
    return Frames(rows, source, _rejected(pipeline, judged, unreadable), counts)


def _readable(pipeline: Pipeline, checked: DataFrame, counts: list[Observation]) -> DataFrame:
    """Return the messages whose bodies fit the schema, and count the others."""
    from pyspark.sql import functions as F

    assert pipeline.json is not None
    name = _observation(pipeline, "json", counts)
    fits = F.col(REASON).isNull()
    if pipeline.reject == "fail":
        fits = F.when(fits, F.lit(True)).otherwise(_unreadable_body(pipeline))
    observed = checked.observe(name, F.count(REASON).alias("unreadable"))
    return unfolded(observed.where(fits).drop(REASON, "body"), pipeline.json)


def _judgement(pipeline: Pipeline) -> Column:
    """Return why a row is rejected; NULL if it is not."""
    from pyspark.sql import functions as F

    if pipeline.where is None:
        return F.lit(None).cast("string")
    fits = F.coalesce(F.expr(pipeline.where), F.lit(False))
    return F.when(~fits, f"not {pipeline.where}")


def _passed(pipeline: Pipeline, judged: DataFrame, counts: list[Observation]) -> DataFrame:
    from pyspark.sql import functions as F

    name = _observation(pipeline, "rows", counts)
    figures = [F.count(F.lit(1)).alias("rows"), F.count(_WHY).alias("rejected")]
    observed = judged.observe(name, *figures)
    fits = F.col(_WHY).isNull()
    if pipeline.reject == "fail":
        text = F.concat(F.lit(f"{pipeline.file.name}, key quality.where: a row is "), F.col(_WHY))
        fits = F.when(fits, F.lit(True)).otherwise(F.raise_error(text).cast("boolean"))
    return observed.where(fits).drop(_WHY)


def _observation(pipeline: Pipeline, name: str, counts: list[Observation]) -> Observation | str:
    """Return an observation that counts rows; a stream's progress has it by name."""
    if not pipeline.batch:
        return name
    from pyspark.sql import Observation

    made = Observation(name)
    counts.append(made)
    return made


def _unreadable_body(pipeline: Pipeline) -> Column:
    """Fail with the reason and the origin of a message."""
    from pyspark.sql import functions as F

    text = F.concat(
        F.lit(f"{pipeline.file.name}, source.json: "),
        F.col(REASON),
        F.lit(": topic "),
        F.col("topic"),
        F.lit(", queue "),
        F.col("queueId").cast("string"),
        F.lit(", offset "),
        F.col("queueOffset").cast("string"),
        F.lit("; [quality] reject = a topic or drop continues without it"),
    )
    return F.raise_error(text).cast("boolean")


def _rejected(pipeline: Pipeline, judged: DataFrame, unreadable: DataFrame | None) -> DataFrame:
    """Make messages of rejected rows: the row as JSON, or the original body."""
    from pyspark.sql import functions as F

    def message(frame: DataFrame, body: Column, reason: str) -> DataFrame:
        properties = F.create_map(
            F.lit("pyrmq_reason"),
            F.substring(F.col(reason), 1, 200),
            F.lit("pyrmq_pipeline"),
            F.lit(pipeline.name),
        )
        size = F.create_map(F.lit("pyrmq_bytes"), F.octet_length(body).cast("string"))
        cut = F.octet_length(body) > _MAX_BYTES
        return frame.where(F.col(reason).isNotNull()).select(
            F.when(cut, F.substring(body, 1, _MAX_BYTES))
            .otherwise(F.coalesce(body, F.lit("").cast("binary")))
            .alias("body"),
            F.when(cut, F.map_concat(properties, size)).otherwise(properties).alias("properties"),
        )

    row = F.to_json(F.struct(*[name for name in judged.columns if name != _WHY])).cast("binary")
    if dict(judged.dtypes).get("body") in {"string", "binary"}:
        # JSON takes more bytes than the body in it, which was a message already.
        row = F.when(F.octet_length(row) > _MAX_BYTES, F.col("body").cast("binary")).otherwise(row)
    messages = message(judged, row, _WHY)
    if unreadable is None:
        return messages
    return message(unreadable, F.col("body").cast("binary"), REASON).unionByName(messages)


def _stepped(spark: SparkSession, pipeline: Pipeline, step: Step, frame: DataFrame) -> DataFrame:
    if step.sql is not None:
        frame.createOrReplaceTempView(_INPUT)
        return spark.sql(step.sql)
    assert step.python is not None
    module, _, name = step.python.partition(":")
    folder = pipeline.file.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    function = getattr(import_module(module), name)
    send_modules(spark, folder)
    from pyspark.errors import PySparkException

    try:
        made: Any = function(frame, **step.args)
    except (PySparkException, RmqError):
        raise
    except Exception as error:
        raise StepError(f"{step.python} raised {type(error).__name__}: {error}") from error
    if not hasattr(made, "createOrReplaceTempView"):
        raise TypeError(f"{step.python} returned {type(made).__name__}, expected a DataFrame")
    return made  # type: ignore[no-any-return]


@contextmanager
def _at(pipeline: Pipeline, table: str, key: str, number: int = 0) -> Iterator[None]:
    """Add the line to an error."""
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, RmqError, ImportError, AttributeError, TypeError) as error:
        text = [line for line in str(error).strip().splitlines() if line.strip()]
        ours = [line for line in text if line.startswith("pyrmq.")]
        pipeline.fail(
            table, key, (ours or text or [type(error).__name__])[-1 if ours else 0], number
        )
