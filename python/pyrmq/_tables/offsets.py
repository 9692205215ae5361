"""Positions in queues, and the JSON in which Spark keeps them.

```text
{"orders": {"broker-a": {"0": 120, "1": 118}, "broker-b": {"0": 97}},   next offset of each queue
 "@begun": {"orders": {"broker-b": {"0": 80}}},      where queues begin that this batch has first
 "@marks": {"orders": {"broker-a": {"0": [71230, 1764000000123], ...}}},   messages before these
 "@since": 1764000000000,                            when the query began, in milliseconds
 "@start": {"orders": {"broker-a": {"0": 100, ...}}},                   first batch of a query only
 "@v": 2}
```

The same form without the reserved keys is what options ``startingOffsets`` and ``endingOffsets``
take, with -2 for the earliest and -1 for the latest. No topic can begin with ``@``. Spark compares
offsets as text, so one set of positions has exactly one spelling: everything is sorted.

Why ``@start``: Spark requests a new query's first offsets again if the first batch was planned but
not finished, and "latest" has moved by then. With the start recorded in the logged end, the
replayed batch reads exactly what was planned. ``@begun`` does this for a queue that appears later
or starts again after a loss. A queue unseen at the start of a query with "latest" or a time begins
at ``@since``. A mark is the log position and store time of the message before a position: another
message there means that the topic was created again or that the broker lost messages.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyrmq._tables.errors import OffsetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "EARLIEST",
    "LATEST",
    "Bounds",
    "Mark",
    "Offsets",
    "Position",
    "Queue",
    "parse_queues",
    "parse_user",
    "parse_version",
    "resolve",
    "to_json",
]

EARLIEST = -2
"""In user offsets: the oldest message that still exists."""
LATEST = -1
"""In user offsets: after the newest message."""
_VERSION = 2
_READABLE = (1, 2)
_VERSION_KEY = "@v"
_START_KEY = "@start"
_BEGUN_KEY = "@begun"
_SINCE_KEY = "@since"
_MARKS_KEY = "@marks"


class Queue(NamedTuple):
    """One queue of one topic on one broker.

    Example:
        >>> str(Queue("orders", "broker-a", 0))
        'topic orders, broker broker-a, queue 0'
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        """Return the text of the queue for errors."""
        return f"topic {self.topic}, broker {self.broker}, queue {self.queue_id}"


class Bounds(NamedTuple):
    """The bounds of a queue: offsets from `lowest` up to, not including, `highest`.

    Example:
        >>> Bounds(5, 9).highest - Bounds(5, 9).lowest
        4
    """

    lowest: int
    highest: int


Offsets: TypeAlias = dict[Queue, int]
"""Next offset to read, by queue."""


class Mark(NamedTuple):
    """The message before a position.

    Attributes:
        log_position: its position in the broker's log.
        stored_ms: when it was stored.
    """

    log_position: int
    stored_ms: int


class Position(NamedTuple):
    """Offsets as Spark keeps them.

    Attributes:
        offsets: where to continue.
        start: where a query's first batch began; None in later batches.
        begun: where queues begin that this batch has first.
        since_ms: when the query began, for queues that come later; None for their earliest.
        marks: the message before each position, if known.

    Example:
        >>> Position({Queue("t", "b", 0): 7}).start is None
        True
    """

    offsets: Offsets
    start: Offsets | None = None
    begun: Mapping[Queue, int] = MappingProxyType({})
    since_ms: int | None = None
    marks: Mapping[Queue, Mark] = MappingProxyType({})


def to_json(position: Position) -> dict[str, Any]:
    """Write a position as the dictionary that Spark stores.

    Example:
        >>> to_json(Position({Queue("t", "b", 1): 7, Queue("t", "b", 0): 3}))
        {'t': {'b': {'0': 3, '1': 7}}, '@v': 2}
    """
    written = _nest(position.offsets)
    if position.begun:
        written[_BEGUN_KEY] = _nest(position.begun)
    if position.marks:
        written[_MARKS_KEY] = _nest({queue: list(mark) for queue, mark in position.marks.items()})
    if position.since_ms is not None:
        written[_SINCE_KEY] = position.since_ms
    if position.start is not None:
        written[_START_KEY] = _nest(position.start)
    written[_VERSION_KEY] = _VERSION
    return written


def parse_version(written: Mapping[str, Any]) -> Position:
    """Read a position that `to_json` wrote, of this version or of version 1.

    Raises:
        OffsetError: the form is unknown, or a newer version.

    Example:
        >>> parse_version({"t": {"b": {"0": 3}}, "@v": 1}).offsets
        {Queue(topic='t', broker='b', queue_id=0): 3}
    """
    version = written.get(_VERSION_KEY)
    if version not in _READABLE:
        raise OffsetError(
            f"checkpoint offsets have version {version}, this release reads versions 1 and"
            f" {_VERSION}: use the pyrmq release that wrote the checkpoint, or a new checkpoint"
            " directory"
        )
    start = written.get(_START_KEY)
    topics = {key: value for key, value in written.items() if not key.startswith("@")}
    return Position(
        _flatten(topics, "checkpoint", lowest=0),
        None if start is None else _flatten(start, "checkpoint", lowest=0),
        _flatten(written.get(_BEGUN_KEY) or {}, "checkpoint", lowest=0),
        _since(written.get(_SINCE_KEY)),
        _marks(written.get(_MARKS_KEY) or {}),
    )


def parse_user(text: str, option: str) -> Offsets:
    """Read the JSON of ``startingOffsets`` or ``endingOffsets``; -1 and -2 stay unchanged.

    Args:
        text: JSON object topic, broker, queue id, offset.
        option: the option's name, for the error.

    Raises:
        OffsetError: not JSON, another shape, or a number below -2.

    Example:
        >>> parse_user('{"t": {"b": {"0": -2}}}', "startingOffsets")
        {Queue(topic='t', broker='b', queue_id=0): -2}
    """
    try:
        written = json.loads(text)
    except json.JSONDecodeError as error:
        raise OffsetError(
            f'option {option}: neither a known word nor JSON of the form {{"topic":{{"broker":'
            f'{{"0":23}}}}}}: {text!r}'
        ) from error
    if not isinstance(written, dict):
        raise OffsetError(f"option {option}: expected a JSON object, found: {text!r}")
    topics = {key: value for key, value in written.items() if not key.startswith("@")}
    return _flatten(topics, f"option {option}", lowest=EARLIEST)


def parse_queues(text: str, option: str) -> list[Queue]:
    """Read the JSON of ``queues``: a list of queue numbers by topic and broker.

    Raises:
        OffsetError: not JSON, or another shape.

    Example:
        >>> parse_queues('{"t": {"b": [0, 1]}}', "queues")[1]
        Queue(topic='t', broker='b', queue_id=1)
    """
    where = f"option {option}"
    try:
        written = json.loads(text)
    except json.JSONDecodeError as error:
        raise OffsetError(
            f'{where}: not JSON of the form {{"topic":{{"broker":[0,1]}}}}: {text!r}'
        ) from error
    found = []
    for topic, brokers in _members(written, where):
        for broker, numbers in _members(brokers, f"{where}, topic {topic}"):
            if not isinstance(numbers, list) or not all(
                isinstance(number, int) and not isinstance(number, bool) and number >= 0
                for number in numbers
            ):
                raise OffsetError(
                    f"{where}, topic {topic}, broker {broker}: expected a list of queue numbers,"
                    f" found: {numbers!r}"
                )
            found += [Queue(topic, broker, number) for number in numbers]
    if not found:
        raise OffsetError(f"{where}: names no queue: {text!r}")
    return found


def resolve(wanted: Mapping[Queue, int], bounds: Mapping[Queue, Bounds], option: str) -> Offsets:
    """Replace -1 and -2 by the queues' bounds, and check the rest against the existing queues.

    Args:
        wanted: offsets from `parse_user`.
        bounds: the current bounds of every queue of the topics.
        option: the option's name, for the error.

    Raises:
        OffsetError: an unknown topic or queue, or a queue that the offsets leave out.

    Example:
        >>> queue = Queue("t", "b", 0)
        >>> resolve({queue: -1}, {queue: Bounds(2, 9)}, "startingOffsets")
        {Queue(topic='t', broker='b', queue_id=0): 9}
    """
    unknown = sorted(set(wanted) - set(bounds))
    if unknown:
        raise OffsetError(f"option {option}: does not exist: {_some(unknown)}")
    missing = sorted(set(bounds) - set(wanted))
    if missing:
        raise OffsetError(
            f"option {option}: missing: {_some(missing)}"
            + ("" if option.endswith("ByTimestamp") else "; -2 means the earliest, -1 the latest")
        )
    words = {EARLIEST: 0, LATEST: 1}
    return {
        queue: bounds[queue][words[offset]] if offset in words else offset
        for queue, offset in sorted(wanted.items())
    }


def _nest(offsets: Mapping[Queue, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for queue, value in sorted(offsets.items()):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = value
    return nested


def _flatten(topics: object, where: str, *, lowest: int) -> Offsets:
    return {
        queue: _offset(value, f"{where}, {queue}", lowest)
        for queue, value in _queues(topics, where)
    }


def _queues(topics: object, where: str) -> Iterator[tuple[Queue, Any]]:
    for topic, brokers in _members(topics, where):
        for broker, queues in _members(brokers, f"{where}, topic {topic}"):
            for queue_id, value in _members(queues, f"{where}, topic {topic}, broker {broker}"):
                if not queue_id.isdecimal():
                    raise OffsetError(
                        f"{where}, topic {topic}, broker {broker}: not a queue number: {queue_id!r}"
                    )
                yield Queue(topic, broker, int(queue_id)), value


def _offset(value: object, where: str, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value < 2**63:
        raise OffsetError(f"{where}: not an offset: {value!r}")
    return value


def _since(value: object) -> int | None:
    return None if value is None else _offset(value, "checkpoint, start of the query", 0)


def _marks(topics: object) -> dict[Queue, Mark]:
    marks = {}
    for queue, value in _queues(topics, "checkpoint"):
        if not isinstance(value, list) or len(value) != 2:
            raise OffsetError(f"checkpoint, {queue}: not a log position and time: {value!r}")
        where = f"checkpoint, {queue}, message before the offset"
        marks[queue] = Mark(_offset(value[0], where, 0), _offset(value[1], where, 0))
    return marks


def _members(value: object, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OffsetError(f"{where}: expected a JSON object, found: {value!r}")
    return list(value.items())


def _some(queues: list[Queue]) -> str:
    shown = "; ".join(str(queue) for queue in queues[:3])
    return shown if len(queues) <= 3 else f"{shown}; and {len(queues) - 3} more"
