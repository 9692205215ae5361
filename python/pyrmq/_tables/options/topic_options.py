"""The options of ``format("rocketmq")``: names in any case, values checked, secrets never shown.

Spark hands options over as strings with lower-case names, so they are read here once into a frozen
class; no other file sees a raw option. An unknown name is an error that suggests the closest known
one. An option that is not built yet is an error: none is ever ignored.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from pyrmq._tables import schema
from pyrmq._tables.errors import OptionError
from pyrmq._tables.namespace import wrapped
from pyrmq._tables.offsets import Offsets, Queue, parse_queues, parse_user
from pyrmq._tables.options.option_table import KNOWN
from pyrmq._tables.options.option_values import OptionValues, check_names, known_only
from pyrmq._tables.options.security import GivenSecurity, Security

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KNOWN", "OnBad", "Options", "ReadFrom", "Strategy", "Word"]

Word: TypeAlias = Literal["earliest", "latest", "group"]
OnBad: TypeAlias = Literal["fail", "null", "skip"]
Strategy: TypeAlias = Literal["latest", "error"]
ReadFrom: TypeAlias = Literal["any", "master", "slave"]

ALIASES = {
    "path": "path",
    "subscribe": "topic",
    "subscribepattern": "topicPattern",
    "assign": "queues",
}
_LATER = {"vipchannel": "the VIP channel"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The checked options of a read; the fields are those of the table `KNOWN`.

    Example:
        >>> Options.parse({"nameserver": "127.0.0.1:9876", "topic": "orders"}, batch=True).topics
        ('orders',)
    """

    name_server: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    queues: frozenset[Queue]
    namespace: str
    starting: Word | Offsets
    starting_timestamp_ms: int | None
    starting_times: Offsets | None
    starting_strategy: Strategy
    ending: Word | Offsets
    ending_timestamp_ms: int | None
    ending_times: Offsets | None
    tags: str
    sql: str | None
    max_offsets_per_trigger: int
    max_bytes_per_trigger: int
    min_offsets_per_trigger: int
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int
    fail_on_data_loss: bool
    layout: schema.Layout
    columns: tuple[str, ...]
    limit: int
    max_batch_bytes: int
    max_batch_rows: int
    pulls_in_flight: int
    offset_refresh_ms: int
    timeout_ms: int
    group: str
    commit_to_group: bool
    include_system_topics: bool
    topic_refresh_ms: int
    brokers: tuple[str, ...]
    on_bad: OnBad
    away_ms: int
    read_from: ReadFrom
    security: Security | GivenSecurity

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
        return _Parser(known_only(given, KNOWN, ALIASES, _LATER), KNOWN).options(batch=batch)

    def of_tasks(self) -> Options:
        """Return the options without those of planning that grow with the number of queues.

        Spark sends them with every task, which gets its own queues beside them.
        """
        return replace(
            self,
            queues=frozenset(),
            starting="earliest",
            starting_times=None,
            ending="latest",
            ending_times=None,
        )

    @classmethod
    def column_names(cls, given: Mapping[str, str]) -> tuple[str, ...]:
        """Read only option ``columns``: Spark requests the schema before anything else.

        Raises:
            OptionError: an unknown option.
            SchemaError: an unknown column.

        Example:
            >>> Options.column_names({"columns": "body, KEYS"})
            ('body', 'keys')
        """
        return _Parser(known_only(given, KNOWN, ALIASES, _LATER), KNOWN).columns()

    @classmethod
    def layout_of(cls, given: Mapping[str, str]) -> schema.Layout:
        """Read only option ``layout``.

        Raises:
            OptionError: an unknown option or layout.

        Example:
            >>> Options.layout_of({"LAYOUT": "kafka"})
            'kafka'
        """
        return _Parser(known_only(given, KNOWN, ALIASES, _LATER), KNOWN).layout()


class _Parser(OptionValues):
    def options(self, *, batch: bool) -> Options:
        topics, pattern, queues = self.topics()
        self.check_kind(batch=batch)
        namespace = self.text("namespace")
        return Options(
            name_server=self.addresses("nameServer"),
            topics=tuple(wrapped(namespace, topic) for topic in topics),
            topic_pattern=pattern or None,
            queues=queues,
            namespace=namespace,
            starting=self.position(
                "startingOffsets",
                "earliest" if batch else "latest",
                refuse="latest" if batch else "",
            ),
            starting_timestamp_ms=self.moment("startingTimestamp"),
            starting_times=self.times("startingOffsetsByTimestamp"),
            starting_strategy=cast(
                "Strategy", self.choice("startingOffsetsByTimestampStrategy", "latest", "error")
            ),
            ending=self.position("endingOffsets", "latest", refuse="earliest"),
            ending_timestamp_ms=self.moment("endingTimestamp"),
            ending_times=self.times("endingOffsetsByTimestamp"),
            tags=self.text("tags") or "*",
            sql=self.condition(),
            max_bytes_per_trigger=self.number("maxBytesPerTrigger", 0),
            max_offsets_per_trigger=self.number("maxOffsetsPerTrigger", 0),
            min_offsets_per_trigger=self.number("minOffsetsPerTrigger", 0),
            max_trigger_delay_ms=self.duration("maxTriggerDelay"),
            min_partitions=self.number("minPartitions", 0, 100_000),
            max_records_per_partition=self.number("maxRecordsPerPartition", 0),
            fail_on_data_loss=self.flag("failOnDataLoss"),
            layout=self.layout(),
            columns=self.columns(),
            limit=self.number("limit", 0),
            max_batch_bytes=self.number("maxBatchBytes", 1024, 1 << 30),
            max_batch_rows=self.number("maxBatchRows", 1, 10_000_000),
            pulls_in_flight=self.number("pullsInFlight", 1, 256),
            offset_refresh_ms=self.number("offsetRefreshMs", 0, 60_000),
            timeout_ms=self.number("timeoutMs", 100, 3_600_000),
            group=wrapped(namespace, self.text("group") or KNOWN["group"][0]),
            commit_to_group=self.commits(),
            include_system_topics=self.flag("includeSystemTopics"),
            topic_refresh_ms=self.number("topicRefreshMs", 0, 86_400_000),
            brokers=self.names("brokers"),
            on_bad=cast("OnBad", self.choice("onBadMessage", "fail", "null", "skip")),
            away_ms=self.number("awayMs", 0),
            read_from=cast("ReadFrom", self.choice("readFrom", "any", "master", "slave")),
            security=Security.parse(self),
        )

    def topics(self) -> tuple[tuple[str, ...], str, frozenset[Queue]]:
        """Read what to read: topics by name, a pattern of names, or single queues."""
        pattern = self.text("topicPattern")
        queues = self.chosen_queues()
        topics = self.names("topic") or self.loaded(pattern)
        given = [
            name
            for name, value in (("topic", topics), ("topicPattern", pattern), ("queues", queues))
            if value
        ]
        if not given:
            raise OptionError("topic", "is missing: name the topic to read")
        if len(given) > 1:
            raise OptionError(given[0], f"excludes {given[1]}: give one of them")
        check_names(topics, pattern)
        return topics or tuple(sorted({queue.topic for queue in queues})), pattern, queues

    def chosen_queues(self) -> frozenset[Queue]:
        """Read option ``queues``; topics are in the namespace."""
        text = self.text("queues")
        queues = parse_queues(text, "queues") if text else []
        return frozenset(self.in_namespace(queue) for queue in queues)

    def in_namespace(self, queue: Queue) -> Queue:
        """Return a queue whose topic the user named without the namespace."""
        return queue._replace(topic=wrapped(self.text("namespace"), queue.topic))

    def check_kind(self, *, batch: bool) -> None:
        """Refuse options that a batch read or a stream does not have."""
        for name in ("commitToGroup", "maxBytesPerTrigger") if batch else ():
            if name in self.given and self.value(name).lower() not in {"false", "0"}:
                raise OptionError(name, "is for streams: a batch read has no triggers")
        if batch:
            return
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "limit"):
            if name in self.given:
                raise OptionError(
                    name, "only a batch read has an end; a stream ends with its trigger"
                )

    def times(self, name: str) -> Offsets | None:
        """Read a time for every queue."""
        text = self.text(name)
        if not text:
            return None
        times = parse_user(text, name)
        for queue, moment in times.items():
            if moment < 0:
                raise OptionError(name, f"{queue}: not a time in milliseconds: {moment}")
        return {self.in_namespace(queue): moment for queue, moment in times.items()}

    def condition(self) -> str | None:
        """Read the SQL92 condition; a broker takes either one or tags."""
        if self.text("sql") and self.text("tags") not in {"", "*"}:
            raise OptionError("sql", "excludes tags: write TAGS = 'a' in the condition")
        return self.text("sql") or None

    def layout(self) -> schema.Layout:
        return cast("schema.Layout", self.choice("layout", *schema.LAYOUTS))

    def commits(self) -> bool:
        """Read whether a stream commits to its group."""
        if not self.flag("commitToGroup"):
            return False
        self.need_group("commitToGroup")
        return True

    def need_group(self, name: str) -> None:
        """Refuse the default group, which others also use."""
        if not self.text("group"):
            raise OptionError("group", f"is missing: {name} needs your own consumer group")

    def loaded(self, pattern: str) -> tuple[str, ...]:
        """Read what `load(...)` names: topics, or a directory if it has a slash or a scheme."""
        names = self.names("path")
        for name in names:
            if "/" in name or "\\" in name:
                raise OptionError(
                    "path",
                    f"not built yet: reading store directories, and no topic is called {name!r}",
                )
        if names and pattern:
            raise OptionError("path", "excludes topicPattern: give one of them")
        if names and not (self.text("nameServer") or os.environ.get("NAMESRV_ADDR")):
            raise OptionError(
                "nameServer",
                f"is missing: load({', '.join(names)!r}) is a topic, whose name servers it needs"
                " (or NAMESRV_ADDR); a store directory has a slash in its name",
            )
        return names

    def position(self, name: str, default: Word, *, refuse: str) -> Word | Offsets:
        text = self.text(name) or default
        word = text.lower()
        if word == "group" and name == "startingOffsets":
            self.need_group(name)
            return "group"
        if word not in {"earliest", "latest"}:
            offsets = parse_user(text, name)
            return {self.in_namespace(queue): offset for queue, offset in offsets.items()}
        if word == refuse:
            raise OptionError(
                name, f"{word} leaves nothing to read: give offsets, a time, or leave it out"
            )
        return "earliest" if word == "earliest" else "latest"

    def columns(self) -> tuple[str, ...]:
        layout = self.layout()
        given = tuple(schema.known(name, layout) for name in self.names("columns"))
        if not self.flag("includeHeaders"):
            return given
        if layout != "kafka":
            raise OptionError(
                "includeHeaders", "is for layout=kafka: here the column properties has them"
            )
        return tuple(dict.fromkeys((*(given or schema.default(layout)), "headers")))
