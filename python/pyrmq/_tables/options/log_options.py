"""The options of a read of log files, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from pyrmq._tables import schema
from pyrmq._tables.errors import OffsetError, OptionError
from pyrmq._tables.offsets import EARLIEST, LATEST, parse_user
from pyrmq._tables.options.option_table import LOG
from pyrmq._tables.options.option_values import LARGEST, OptionValues, check_names, known_only

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LogOptions", "directory_of"]

OnBad: TypeAlias = Literal["fail", "null", "skip"]
OnCorrupt: TypeAlias = Literal["fail", "skip"]
QueueRanges: TypeAlias = "dict[str, dict[int, tuple[int, int]]]"
"""First offset, and the offset after the last, by topic and queue number."""

_ALIASES = {"subscribe": "topic", "subscribepattern": "topicPattern"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def directory_of(given: Mapping[str, str]) -> str | None:
    """Return the directory that ``load(...)`` names; None when it names topics or nothing.

    A slash, a backslash or a URL scheme makes it a directory: no topic name can hold one.

    Raises:
        OptionError: the scheme is not that of local files.

    Example:
        >>> directory_of({"path": "/data/store"}), directory_of({"path": "orders"})
        ('/data/store', None)
    """
    path = next((value for name, value in given.items() if name.lower() == "path"), "").strip()
    if _SCHEME.match(path) is None:
        return path if "/" in path or "\\" in path else None
    url = urlsplit(path)
    if url.scheme.lower() != "file" or url.netloc not in {"", "localhost"}:
        raise OptionError(
            "path",
            f"only local directories are read, found: {path!r}; mount it, or copy it with"
            " pyarrow.fs.copy_files, to one path that the driver and every executor can read",
        )
    return unquote(url.path)


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The checked options of a read of log files; the fields are those of the table `LOG`.

    Attributes:
        directory: a broker's store, or its commit log.
        topics: names; empty for all that match the pattern, or for all.
        from_end: whether a stream begins after the last message.
        queues: offsets of queues; None for all.

    Example:
        >>> LogOptions.parse({"path": "/data/store", "topic": "orders"}, batch=True).topics
        ('orders',)
    """

    directory: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    include_system_topics: bool
    from_end: bool
    queues: QueueRanges | None
    since_ms: int | None
    until_ms: int | None
    tags: str
    broker_name: str | None
    columns: tuple[str, ...]
    limit: int
    on_bad: OnBad
    on_corrupt: OnCorrupt
    check_bodies: bool
    fail_on_data_loss: bool
    max_partition_bytes: int
    max_offsets_per_trigger: int
    max_batch_bytes: int
    max_batch_rows: int
    offset_refresh_ms: int

    @classmethod
    def parse(cls, given: Mapping[str, str], *, batch: bool) -> LogOptions:
        """Read Spark's options; ``path`` is the directory.

        Raises:
            OptionError: an unknown, contradictory or ill-formed option.
            OffsetError: offsets that are neither a word nor the JSON form.
        """
        return _Parser(_known(given), LOG).options(directory_of(given) or "", batch=batch)

    @classmethod
    def column_names(cls, given: Mapping[str, str]) -> tuple[str, ...]:
        """Read only option ``columns``.

        Raises:
            OptionError: an unknown option.
            SchemaError: an unknown column.
        """
        return _Parser(_known(given), LOG).columns()


def _known(given: Mapping[str, str]) -> dict[str, str]:
    rest = {name: value for name, value in given.items() if name.lower() != "path"}
    if any(name.lower() == "nameserver" for name in rest):
        raise OptionError(
            "nameServer",
            "excludes a directory in load(...): a directory is read without servers, and a topic"
            " has no slash in its name",
        )
    return known_only(rest, LOG, _ALIASES, {})


class _Parser(OptionValues):
    def options(self, directory: str, *, batch: bool) -> LogOptions:
        topics, pattern = self.names("topic"), self.text("topicPattern")
        if topics and pattern:
            raise OptionError("topic", "excludes topicPattern: give one of them")
        check_names(topics, pattern)
        for name in () if batch else ("endingOffsets", "endingTimestamp", "limit"):
            if name in self.given:
                raise OptionError(
                    name, "only a batch read has an end; a stream ends with its trigger"
                )
        broker = self.text("brokerName") or None
        start = self.text("startingOffsets").lower() or ("earliest" if batch else "latest")
        if batch and start == "latest":
            raise OptionError("startingOffsets", "latest leaves nothing to read in a batch")
        return LogOptions(
            directory=directory,
            topics=topics,
            topic_pattern=pattern or None,
            include_system_topics=self.flag("includeSystemTopics"),
            from_end=start == "latest" and not self.text("startingTimestamp"),
            queues=self.queues(broker),
            since_ms=self.moment("startingTimestamp"),
            until_ms=self.moment("endingTimestamp"),
            tags=self.text("tags") or "*",
            broker_name=broker,
            columns=self.columns(),
            limit=self.number("limit", 0),
            on_bad=cast("OnBad", self.choice("onBadMessage", "fail", "null", "skip")),
            on_corrupt=cast("OnCorrupt", self.choice("onCorrupt", "fail", "skip")),
            check_bodies=self.flag("checkCRC"),
            fail_on_data_loss=self.flag("failOnDataLoss"),
            max_partition_bytes=self.number("maxPartitionBytes", 1 << 16, 1 << 40),
            max_offsets_per_trigger=self.number("maxOffsetsPerTrigger", 0),
            max_batch_bytes=self.number("maxBatchBytes", 1024, 1 << 30),
            max_batch_rows=self.number("maxBatchRows", 1, 10_000_000),
            offset_refresh_ms=self.number("offsetRefreshMs", 0, 60_000),
        )

    def queues(self, broker: str | None) -> QueueRanges | None:
        """Read the offsets of queues: both options limit which messages are read."""
        starts = self._offsets("startingOffsets", broker, {"earliest", "latest"})
        ends = self._offsets("endingOffsets", broker, {"latest"})
        if starts is None and ends is None:
            return None
        keys = set(starts or ends or ())
        if starts is not None and ends is not None and set(ends) != keys:
            topic, queue = min(keys.symmetric_difference(ends))
            raise OffsetError(
                f"topic {topic}, queue {queue}: is in only one of startingOffsets and"
                " endingOffsets; -2 means the earliest, -1 the latest"
            )
        ranges: QueueRanges = {}
        for topic, queue in sorted(keys):
            first = 0 if starts is None else starts[topic, queue]
            last = LARGEST if ends is None else ends[topic, queue]
            if first > last:
                raise OffsetError(
                    f"topic {topic}, queue {queue}: startingOffsets has {first}, which is"
                    f" after endingOffsets {last}"
                )
            ranges.setdefault(topic, {})[queue] = (first, last)
        return ranges

    def _offsets(
        self, name: str, broker: str | None, words: set[str]
    ) -> dict[tuple[str, int], int] | None:
        text = self.text(name)
        if not text or text.lower() in words:
            return None
        offsets = parse_user(text, name)
        for queue in offsets:
            if queue.broker != broker:
                raise OffsetError(
                    f"option {name}: has broker {queue.broker}; a directory belongs to one broker,"
                    f" whose name is option brokerName, which is {broker or 'missing'}"
                )
        special = {EARLIEST: 0, LATEST: LARGEST}
        return {
            (queue.topic, queue.queue_id): special.get(offset, offset)
            for queue, offset in offsets.items()
        }

    def columns(self) -> tuple[str, ...]:
        return tuple(schema.known(name) for name in self.names("columns"))
