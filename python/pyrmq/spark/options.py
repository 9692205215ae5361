"""The options of ``format("rocketmq")``: names in any case, values checked, secrets never shown.

Spark hands options over as strings with lower-case names, so they are read here once into a
frozen class; nothing behind this file sees a raw option. An unknown name is an error that names
the nearest known one. A name whose turn has not come is an error that says so: an option is never
ignored.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyrmq.spark import schema
from pyrmq.spark.errors import OptionError
from pyrmq.spark.offsets import Offsets, parse_user

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KNOWN", "Options", "Word"]

Word: TypeAlias = Literal["earliest", "latest"]

KNOWN: dict[str, tuple[str, str]] = {
    "nameServer": ("required", "name servers, `host:port;host:port`"),
    "topic": ("required, or topicPattern", "comma list of topics; alias `subscribe`"),
    "topicPattern": (
        "",
        "regular expression that whole topic names match; alias `subscribePattern`",
    ),
    "startingOffsets": (
        "latest (stream), earliest (batch)",
        "earliest, latest, or JSON by topic, broker, queue",
    ),
    "startingTimestamp": ("", "milliseconds or ISO 8601; beats startingOffsets"),
    "endingOffsets": ("latest", "batch only: latest, or JSON"),
    "endingTimestamp": ("", "batch only: milliseconds or ISO 8601; beats endingOffsets"),
    "tags": ("*", "`A || B`, filtered by the broker"),
    "maxOffsetsPerTrigger": (
        "1000000",
        "rows per micro-batch; 0 for no limit; without effect on Spark 4.1",
    ),
    "minOffsetsPerTrigger": ("0", "rows to wait for before a batch"),
    "maxTriggerDelay": ("15m", "but no longer than this"),
    "minPartitions": ("0", "cut queues until there are this many tasks"),
    "maxRecordsPerPartition": ("0", "cut queues so that no task spans more offsets"),
    "failOnDataLoss": ("true", "fail when unread messages are gone"),
    "columns": ("", "comma list of columns instead of the default ones"),
    "limit": ("0", "batch only: the most rows to read"),
    "maxBatchBytes": ("8388608", "size of an Arrow batch"),
    "maxBatchRows": ("10000", "rows of an Arrow batch"),
    "pullsInFlight": ("8", "pull requests kept open per task"),
    "offsetRefreshMs": ("100", "oldest offsets that an idle stream may act on"),
    "timeoutMs": (
        "30000",
        "how long a server may be away, or a queue shorter than it was, before the read fails",
    ),
    "group": ("pyrmq-spark", "consumer group named in pull requests; no offsets are kept for it"),
}
"""Every option: default and meaning."""

_ALIASES = {"subscribe": "topic", "subscribepattern": "topicPattern"}
_LATER = {
    "accesskey": "signed requests",
    "secretkey": "signed requests",
    "tls": "TLS",
    "vipchannel": "the VIP channel",
    "maxbytespertrigger": "a limit by bytes (use maxOffsetsPerTrigger)",
    "committogroup": "reporting progress to a consumer group",
    "filterpushdown": "filter pushdown (use tags and the offset options)",
    "path": "reading store directories",
}
_SPARKS_OWN = {"checkpointlocation"}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h)")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_LARGEST = 2**63 - 1
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:;\[\]\s]+):(\d{1,5})")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a read was asked for, checked. Field for field the table `KNOWN`.

    Example:
        >>> Options.parse({"nameserver": "127.0.0.1:9876", "topic": "orders"}, batch=True).topics
        ('orders',)
    """

    name_server: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    starting: Word | Offsets
    starting_timestamp_ms: int | None
    ending: Word | Offsets
    ending_timestamp_ms: int | None
    tags: str
    max_offsets_per_trigger: int
    min_offsets_per_trigger: int
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    limit: int
    max_batch_bytes: int
    max_batch_rows: int
    pulls_in_flight: int
    offset_refresh_ms: int
    timeout_ms: int
    group: str

    @classmethod
    def parse(cls, given: Mapping[str, str], *, batch: bool) -> Options:
        """Read Spark's options.

        Args:
            given: names in any case, values as text.
            batch: a batch read (true) or a stream (false): some options belong to one of them.

        Raises:
            OptionError: an unknown, missing, contradictory or ill-formed option.
            OffsetError: offsets that are neither a word nor the JSON form.
        """
        return _Parser(_known_only(given)).options(batch=batch)

    @classmethod
    def column_names(cls, given: Mapping[str, str]) -> tuple[str, ...]:
        """Read only option ``columns``: Spark asks for the schema before anything else.

        Raises:
            OptionError: an unknown option.
            SchemaError: an unknown column.

        Example:
            >>> Options.column_names({"columns": "body, KEYS"})
            ('body', 'keys')
        """
        return _Parser(_known_only(given)).columns()


def _known_only(given: Mapping[str, str]) -> dict[str, str]:
    by_lower = {name.lower(): name for name in KNOWN} | _ALIASES
    found: dict[str, str] = {}
    for written, value in given.items():
        lower = written.lower()
        if lower in _SPARKS_OWN:
            continue
        if lower in _LATER:
            if (
                lower in {"tls", "vipchannel", "committogroup", "filterpushdown"}
                and value.strip().lower() == "false"
            ):
                continue
            raise OptionError(written, f"not built yet: {_LATER[lower]}")
        name = by_lower.get(lower)
        if name is None:
            near = difflib.get_close_matches(lower, by_lower, n=1, cutoff=0.5)
            hint = (
                f"did you mean {by_lower[near[0]]}?" if near else f"known are: {', '.join(KNOWN)}"
            )
            raise OptionError(written, f"unknown, {hint}")
        if name in found:
            raise OptionError(written, f"given twice: it is another name of {name}")
        found[name] = value
    return found


class _Parser:
    def __init__(self, given: dict[str, str]) -> None:
        self.given = given

    def options(self, *, batch: bool) -> Options:
        pattern = self.text("topicPattern")
        topics = tuple(
            dict.fromkeys(name.strip() for name in self.text("topic").split(",") if name.strip())
        )
        if bool(topics) == bool(pattern):
            problem = (
                "excludes topicPattern: give one of them"
                if topics
                else "is missing: name the topic to read"
            )
            raise OptionError("topic", problem)
        for topic in topics:
            if not _NAME.fullmatch(topic):
                raise OptionError("topic", f"no topic name: {topic!r}")
        if pattern:
            try:
                re.compile(pattern)
            except re.error as error:
                raise OptionError(
                    "topicPattern", f"no regular expression: {pattern!r}: {error}"
                ) from error
        if not batch:
            for name in ("endingOffsets", "endingTimestamp", "limit"):
                if name in self.given:
                    raise OptionError(
                        name, "only a batch read has an end; a stream ends with its trigger"
                    )
        return Options(
            name_server=self.addresses("nameServer"),
            topics=topics,
            topic_pattern=pattern or None,
            starting=self.position(
                "startingOffsets",
                "earliest" if batch else "latest",
                refuse="latest" if batch else "",
            ),
            starting_timestamp_ms=self.moment("startingTimestamp"),
            ending=self.position("endingOffsets", "latest", refuse="earliest"),
            ending_timestamp_ms=self.moment("endingTimestamp"),
            tags=self.text("tags") or "*",
            max_offsets_per_trigger=self.number("maxOffsetsPerTrigger", 0),
            min_offsets_per_trigger=self.number("minOffsetsPerTrigger", 0),
            max_trigger_delay_ms=self.duration("maxTriggerDelay"),
            min_partitions=self.number("minPartitions", 0, 100_000),
            max_records_per_partition=self.number("maxRecordsPerPartition", 0),
            fail_on_data_loss=self.flag("failOnDataLoss"),
            columns=self.columns(),
            limit=self.number("limit", 0),
            max_batch_bytes=self.number("maxBatchBytes", 1024, 1 << 30),
            max_batch_rows=self.number("maxBatchRows", 1, 10_000_000),
            pulls_in_flight=self.number("pullsInFlight", 1, 256),
            offset_refresh_ms=self.number("offsetRefreshMs", 0, 60_000),
            timeout_ms=self.number("timeoutMs", 100, 3_600_000),
            group=self.text("group") or KNOWN["group"][0],
        )

    def text(self, name: str) -> str:
        return self.given.get(name, "").strip()

    def value(self, name: str) -> str:
        return self.text(name) or KNOWN[name][0]

    def number(self, name: str, lowest: int, highest: int = _LARGEST) -> int:
        text = self.value(name)
        try:
            number = int(text)
        except ValueError:
            raise OptionError(name, f"a whole number is wanted, found: {text!r}") from None
        if not lowest <= number <= highest:
            raise OptionError(name, f"must lie between {lowest} and {highest}, found: {number}")
        return number

    def flag(self, name: str) -> bool:
        text = self.value(name).lower()
        if text not in {"true", "false"}:
            raise OptionError(name, f"true or false is wanted, found: {text!r}")
        return text == "true"

    def duration(self, name: str) -> int:
        text = self.value(name)
        match = _DURATION.fullmatch(text)
        if match is None:
            raise OptionError(
                name, f"a duration as 500ms, 30s, 15m or 1h is wanted, found: {text!r}"
            )
        return int(match[1]) * _DURATION_MS[match[2]]

    def moment(self, name: str) -> int | None:
        text = self.text(name)
        if not text:
            return None
        if text.isdecimal():
            return int(text)
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(
                name, f"milliseconds or ISO 8601 is wanted, found: {text!r}"
            ) from None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return round(when.timestamp() * 1000)

    def position(self, name: str, default: Word, *, refuse: str) -> Word | Offsets:
        text = self.text(name) or default
        word = text.lower()
        if word == "group":
            raise OptionError(name, "not built yet: starting from a consumer group's offsets")
        if word not in {"earliest", "latest"}:
            return parse_user(text, name)
        if word == refuse:
            raise OptionError(
                name, f"{word} leaves nothing to read: give offsets, a time, or leave it out"
            )
        return "earliest" if word == "earliest" else "latest"

    def addresses(self, name: str) -> str:
        given = [part.strip() for part in self.text(name).split(";") if part.strip()]
        if not given:
            raise OptionError(
                name, "is missing: name the cluster's name servers as host:port;host:port"
            )
        for address in given:
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match[2]) < 65536:
                raise OptionError(name, f"host:port is wanted, found: {address!r}")
        return ";".join(given)

    def columns(self) -> tuple[str, ...]:
        return tuple(
            schema.known(name.strip()) for name in self.text("columns").split(",") if name.strip()
        )
