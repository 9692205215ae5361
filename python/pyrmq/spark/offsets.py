"""Positions in queues, and the JSON in which Spark keeps them.

```text
{"orders": {"broker-a": {"0": 120, "1": 118}, "broker-b": {"0": 97}},   next offset of each queue
 "@start": {"orders": {"broker-a": {"0": 100, ...}}},                   first batch of a query only
 "@v": 1}
```

The same form without the two reserved keys is what options ``startingOffsets`` and
``endingOffsets`` take, with -2 for the earliest and -1 for the latest. No topic can begin with
``@``. Spark compares offsets as text, so one set of positions has exactly one spelling: everything
is sorted.

Why ``@start``: Spark asks a new query's first offsets anew when the first batch was planned but not
finished, and "latest" has moved by then. With the start recorded in the logged end, the replayed
batch reads exactly what was planned.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyrmq.spark.errors import OffsetError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EARLIEST",
    "LATEST",
    "Bounds",
    "Offsets",
    "Position",
    "Queue",
    "parse_user",
    "parse_version",
    "resolve",
    "to_json",
]

EARLIEST = -2
"""In user offsets: the oldest message that is still there."""
LATEST = -1
"""In user offsets: behind the newest message."""
_VERSION = 1
_VERSION_KEY = "@v"
_START_KEY = "@start"


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
        """Spell the queue out as errors show it."""
        return f"topic {self.topic}, broker {self.broker}, queue {self.queue_id}"


class Bounds(NamedTuple):
    """What a queue holds: offsets from `lowest` up to, not including, `highest`.

    Example:
        >>> Bounds(5, 9).highest - Bounds(5, 9).lowest
        4
    """

    lowest: int
    highest: int


Offsets: TypeAlias = dict[Queue, int]
"""Next offset to read, by queue."""


class Position(NamedTuple):
    """Offsets as Spark keeps them: where to go on, and for a first batch where it began.

    Example:
        >>> Position({Queue("t", "b", 0): 7}).start is None
        True
    """

    offsets: Offsets
    start: Offsets | None = None


def to_json(
    offsets: Mapping[Queue, int], start: Mapping[Queue, int] | None = None
) -> dict[str, Any]:
    """Write positions as the dictionary that Spark stores.

    Args:
        offsets: next offset to read, by queue.
        start: where the query's first batch began; only for the end of that batch.

    Example:
        >>> to_json({Queue("t", "b", 1): 7, Queue("t", "b", 0): 3})
        {'t': {'b': {'0': 3, '1': 7}}, '@v': 1}
    """
    written = _nest(offsets)
    if start is not None:
        written[_START_KEY] = _nest(start)
    written[_VERSION_KEY] = _VERSION
    return written


def parse_version(written: Mapping[str, Any]) -> Position:
    """Read positions that `to_json` wrote.

    Raises:
        OffsetError: the form is another one, or a newer version of ours.

    Example:
        >>> parse_version({"t": {"b": {"0": 3}}, "@v": 1}).offsets
        {Queue(topic='t', broker='b', queue_id=0): 3}
    """
    version = written.get(_VERSION_KEY)
    if version != _VERSION:
        raise OffsetError(
            f"checkpoint offsets have version {version}, this release reads version {_VERSION}:"
            " use the pyrmq release that wrote the checkpoint, or a new checkpoint directory"
        )
    start = written.get(_START_KEY)
    topics = {key: value for key, value in written.items() if not key.startswith("@")}
    return Position(
        _flatten(topics, "checkpoint", lowest=0),
        None if start is None else _flatten(start, "checkpoint", lowest=0),
    )


def parse_user(text: str, option: str) -> Offsets:
    """Read the JSON of ``startingOffsets`` or ``endingOffsets``; -1 and -2 stay as they are.

    Args:
        text: JSON object topic, broker, queue id, offset.
        option: the option's name, for the error.

    Raises:
        OffsetError: no JSON, another shape, or a number below -2.

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
        raise OffsetError(f"option {option}: a JSON object is wanted, found: {text!r}")
    topics = {key: value for key, value in written.items() if not key.startswith("@")}
    return _flatten(topics, f"option {option}", lowest=EARLIEST)


def resolve(wanted: Mapping[Queue, int], bounds: Mapping[Queue, Bounds], option: str) -> Offsets:
    """Replace -1 and -2 by what the queues hold, and hold the rest against the queues that exist.

    Args:
        wanted: offsets from `parse_user`.
        bounds: what every queue of the topics holds now.
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
            f"option {option}: offsets are missing for: {_some(missing)};"
            " -2 means the earliest, -1 the latest"
        )
    words = {EARLIEST: 0, LATEST: 1}
    return {
        queue: bounds[queue][words[offset]] if offset in words else offset
        for queue, offset in sorted(wanted.items())
    }


def _nest(offsets: Mapping[Queue, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for queue, offset in sorted(offsets.items()):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = (
            offset
        )
    return nested


def _flatten(topics: object, where: str, *, lowest: int) -> Offsets:
    offsets: Offsets = {}
    for topic, brokers in _members(topics, where):
        for broker, queues in _members(brokers, f"{where}, topic {topic}"):
            for queue_id, offset in _members(queues, f"{where}, topic {topic}, broker {broker}"):
                if not queue_id.isdecimal():
                    raise OffsetError(
                        f"{where}, topic {topic}, broker {broker}: no queue number: {queue_id!r}"
                    )
                queue = Queue(topic, broker, int(queue_id))
                if (
                    isinstance(offset, bool)
                    or not isinstance(offset, int)
                    or not lowest <= offset < 2**63
                ):
                    raise OffsetError(f"{where}, {queue}: no offset: {offset!r}")
                offsets[queue] = offset
    return offsets


def _members(value: object, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OffsetError(f"{where}: a JSON object is wanted, found: {value!r}")
    return list(value.items())


def _some(queues: list[Queue]) -> str:
    shown = "; ".join(str(queue) for queue in queues[:3])
    return shown if len(queues) <= 3 else f"{shown}; and {len(queues) - 3} more"
