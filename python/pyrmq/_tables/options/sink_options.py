"""The options of the sink, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyrmq._tables.errors import OptionError
from pyrmq._tables.namespace import wrapped
from pyrmq._tables.options.option_table import SINK
from pyrmq._tables.options.option_values import TOPIC_NAME, OptionValues, known_only
from pyrmq._tables.options.security import Security

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SinkOptions"]


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The checked options of a write; the fields are those of the table `SINK`.

    Attributes:
        bad_row_topic: topic of the rows that cannot be messages; None: they fail the write.
        checkpoint: the stream's checkpoint directory; None for a batch.
    """

    name_server: str
    topic: str | None
    namespace: str
    kafka_layout: bool
    exactly_once: bool
    bad_row_topic: str | None
    group: str
    timeout_ms: int
    checkpoint: str | None
    security: Security

    @staticmethod
    def is_kafka(given: Mapping[str, str]) -> bool:
        """Read only option ``layout``: the columns are checked before the other options.

        Raises:
            OptionError: an unknown option or layout.
        """
        parser = OptionValues(known_only(given, SINK, {}, {}), SINK)
        return parser.choice("layout", "rocketmq", "kafka") == "kafka"

    @classmethod
    def parse(cls, given: Mapping[str, str], *, has_topic_column: bool) -> SinkOptions:
        """Read Spark's options.

        Raises:
            OptionError: an unknown, missing, contradictory or ill-formed option.
        """
        parser = OptionValues(known_only(given, SINK, {}, {}), SINK)
        topic, namespace = parser.text("topic"), parser.text("namespace")
        if parser.flag("includeHeaders") and not cls.is_kafka(given):
            raise OptionError(
                "includeHeaders", "is for layout=kafka: here the column properties has them"
            )
        exactly_once = parser.choice("delivery", "at-least-once", "exactly-once") == "exactly-once"
        if not topic and not has_topic_column:
            raise OptionError(
                "topic", "is missing: name the topic, or add such a column to the rows"
            )
        if not topic and exactly_once:
            raise OptionError(
                "topic", "is missing: delivery=exactly-once needs it, since it writes to one topic"
            )
        on_bad = parser.value("onBadRow")
        bad_row_topic = None if on_bad.lower() == "fail" else on_bad
        for name, text in (("topic", topic), ("onBadRow", bad_row_topic)):
            if text and not TOPIC_NAME.fullmatch(text):
                raise OptionError(name, f"not a topic name: {text!r}")
        checkpoint = {name.lower(): value for name, value in given.items()}
        return cls(
            name_server=parser.addresses("nameServer"),
            topic=wrapped(namespace, topic) if topic else None,
            namespace=namespace,
            kafka_layout=cls.is_kafka(given),
            exactly_once=exactly_once,
            bad_row_topic=bad_row_topic and wrapped(namespace, bad_row_topic),
            group=wrapped(namespace, parser.value("group")),
            timeout_ms=parser.number("timeoutMs", 100, 3_600_000),
            checkpoint=checkpoint.get("checkpointlocation"),
            security=Security.parse(parser),
        )
