"""The options of a pipeline's source, sink and topic of rejected rows, and its interval."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyrmq._tables.errors import OffsetError, OptionError, SchemaError
from pyrmq._tables.offsets import Queue
from pyrmq._tables.options.log_options import LogOptions
from pyrmq._tables.options.option_table import SECURITY, SINK
from pyrmq._tables.options.option_values import OptionValues
from pyrmq._tables.options.sink_options import SinkOptions
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.cluster import is_wanted

if TYPE_CHECKING:
    from pyrmq.pipeline.file import Pipeline

__all__ = ["as_text", "check_options", "period_ms", "reject_options", "topic_options"]

_SPARKS_UNITS = re.compile(r"\b(millisecond|second|minute|hour)s?$")
_SHORT = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h"}


def check_options(made: Pipeline) -> None:
    """Check the options of source, sink and rejected rows, and that no stream reads what it writes.

    Raises:
        PipelineError: an option is wrong, or a stream reads a topic that it writes to.
    """
    source: Options | None = None
    try:
        if "path" in made.source:
            LogOptions.parse(made.source, batch=made.batch)
        else:
            source = Options.parse(made.source, batch=made.batch)
    except OptionError as error:
        made.fail("source", error.option, str(error).partition(": ")[2])
    except (OffsetError, SchemaError) as error:
        made.fail("source", "", str(error))
    if made.sink["format"] == "topic":
        try:
            sink = SinkOptions.parse(topic_options(made), has_topic_column=True)
        except OptionError as error:
            made.fail("sink", error.option, str(error).partition(": ")[2])
        _check_circle(made, source, sink, "sink", "topic")
    if made.reject not in {"drop", "fail"} and source is not None:
        reject = SinkOptions.parse(reject_options(made), has_topic_column=False)
        _check_circle(made, source, reject, "quality", "reject")


def _check_circle(
    made: Pipeline, source: Options | None, sink: SinkOptions, table: str, key: str
) -> None:
    """A stream that reads its own output never ends; a batch ends at the messages that existed."""
    if made.batch or source is None or sink.topic is None:
        return
    if source.name_server != sink.name_server:
        return
    names = {queue.topic for queue in source.queues} or {*source.topics}
    is_read = sink.topic in names or (
        source.topic_pattern is not None and is_wanted(source, Queue(sink.topic, "", 0))
    )
    if is_read:
        made.fail(table, key, f"the pipeline reads topic {sink.topic}: it would read its own rows")


def topic_options(pipeline: Pipeline) -> dict[str, str]:
    """Return the options of a sink into a topic.

    Without a name server it is in the source's cluster, and uses the source's credentials and TLS
    if it has none.
    """
    given = {key: as_text(value) for key, value in pipeline.sink.items() if key in SINK}
    if "nameServer" in pipeline.sink:
        return given
    security = () if any(key in SECURITY for key in given) else SECURITY
    for name in ("nameServer", "namespace", *security):
        if name in pipeline.source:
            given.setdefault(name, pipeline.source[name])
    return given


def reject_options(pipeline: Pipeline) -> dict[str, str]:
    """Return the options of the topic of rejected rows."""
    of_sink = topic_options(pipeline)
    options = {name: of_sink.get(name, "") for name in ("nameServer", *SECURITY)}
    options["topic"] = pipeline.reject
    if "namespace" in pipeline.source:
        options["namespace"] = pipeline.source["namespace"]
    return {name: text for name, text in options.items() if text}


def period_ms(every: str) -> int:
    """Read how often a run takes a batch; Spark's own spelling is taken, too.

    Raises:
        ConfigError: it is not a duration.

    Example:
        >>> period_ms("10s"), period_ms("2 minutes")
        (10000, 120000)
    """
    short = _SPARKS_UNITS.sub(lambda match: _SHORT[match[1]], every)
    return OptionValues({"every": short}, {}).duration("every")


def as_text(value: object) -> str:
    """Convert a value of the file to the text of a Spark option."""
    return str(value).lower() if isinstance(value, bool) else str(value)
