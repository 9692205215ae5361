"""Read the arguments of calls: addresses, times, queues, offsets."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol, cast

from pyrmq.errors import BatchSendError, ConfigError, RmqError
from pyrmq.message import Body, Message, QueueId, Selector, SendResult

__all__ = [
    "Compression",
    "Durability",
    "Start",
    "all_sent",
    "committable",
    "handle_of",
    "milliseconds",
    "name_servers",
    "queue_and_time_left",
    "queue_of",
    "queue_offsets_of",
    "selected",
    "start_of",
    "time_left",
    "topics_of",
    "whole",
    "with_properties",
]

Start = Literal["first", "last"] | datetime
"""Where a group begins in a queue for which it has no committed offset."""

Compression = Literal["zlib", "lz4", "zstd"]
"""How large bodies are compressed. Brokers and consumers before 5.0 read only zlib."""

Durability = Literal["memory", "local"]
"""How durable a message is when its send returns: in the page cache, or fsynced."""

NAMESRV_ADDR = "NAMESRV_ADDR"


def name_servers(given: str | Sequence[str] | None, address_server: str | None = None) -> list[str]:
    """Read name server addresses: `host:port;host:port`, a sequence, or the environment.

    None are needed with an address server.
    """
    if address_server is not None:
        if given is not None:
            raise ConfigError("give `name_server` or `address_server`, not both")
        return []
    if given is None:
        given = os.environ.get(NAMESRV_ADDR, "")
        if not given:
            raise ConfigError(
                "no name server is given: pass name_server='host:port;host:port', "
                f"or set the environment variable {NAMESRV_ADDR}"
            )
    words: object = given.replace(",", ";").split(";") if isinstance(given, str) else given
    given_parts = list(words) if isinstance(words, Iterable) else [words]
    parts = [part for part in given_parts if isinstance(part, str)]
    if len(parts) < len(given_parts):
        raise ConfigError(
            f"option `name_server` is {given!r}, it must be `host:port;host:port` "
            "or a sequence of `host:port`"
        )
    addresses = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not addresses:
        raise ConfigError("option `name_server` is empty, it must be `host:port;host:port`")
    return addresses


_MAX_S = 1e9
"""Three decades: no limit in practice."""


def milliseconds(option: str, seconds: float) -> int:
    """Turn a time in seconds into whole milliseconds, at least 1 unless it is 0."""
    try:
        is_time = seconds >= 0
    except TypeError:
        is_time = False
    if not is_time:
        raise ConfigError(f"option `{option}` is {seconds!r}, it must be a time of 0 s or more")
    return max(1, round(min(seconds, _MAX_S) * 1000)) if seconds else 0


def whole(option: str, number: object, lowest: int = 0) -> int:
    """Check that an option is a whole number in its range."""
    if isinstance(number, int) and not isinstance(number, bool) and lowest <= number < 2**31:
        return number
    raise ConfigError(
        f"option `{option}` is {number!r}, it must be a whole number from {lowest} on"
    )


class Routed(Protocol):
    """A native producer: the part that a selector needs."""

    def queues(self, topic: str, timeout_ms: int | None = None) -> list[tuple[str, str, int]]:
        """The writable queues of a topic, after waiting up to `timeout_ms` for its route."""
        ...


def queue_of(
    core: Routed,
    topic: str,
    queue: int | QueueId | Selector | None,
    timeout_ms: int | None = None,
) -> tuple[str, int] | None:
    """Read the queue that a caller names: a number, a queue of this topic, or a function."""
    if queue is None:
        return None
    if isinstance(queue, int):
        return "", _queue_number(queue)
    if isinstance(queue, QueueId):
        if queue.topic != topic:
            raise ConfigError(f"queue {queue} is not of topic `{topic}`")
        return queue.broker, _queue_number(queue.queue_id)
    return selected([QueueId(*place) for place in core.queues(topic, timeout_ms)], queue)


def _queue_number(number: int) -> int:
    if -(2**31) <= number < 2**31:
        return number
    raise ConfigError(
        f"option `queue` is {number}, it must be a whole number from {-(2**31)} to {2**31 - 1}"
    )


def queue_and_time_left(
    core: Routed,
    topic: str,
    queue: int | QueueId | Selector | None,
    wait: int | None,
    send_timeout: float,
) -> tuple[tuple[str, int] | None, int | None]:
    """Read the queue that a caller names, and subtract the time for this from the send's."""
    if queue is None:
        return None, wait
    began = time.monotonic()
    found = queue_of(core, topic, queue, wait)
    return found, time_left(began, time.monotonic(), wait, send_timeout)


def time_left(began: float, now: float, wait: int | None, send_timeout: float) -> int | None:
    """The time left for a send; None: the producer's whole timeout."""
    spent = round((now - began) * 1000)
    if spent < _NO_TIME_MS:
        return wait
    whole = milliseconds("send_timeout", send_timeout) if wait is None else wait
    return max(1, whole - spent)


_NO_TIME_MS = 10
"""Choosing a queue in less time is not counted: a send with a timeout cannot be batched."""


def selected(queues: list[QueueId], selector: Selector) -> tuple[str, int]:
    """Call a selector, and check that it returns a queue."""
    chosen = selector(queues)
    if not isinstance(chosen, QueueId):
        if isinstance(chosen, bool) or not isinstance(chosen, int):
            raise ConfigError(f"the selector returned {chosen!r}, it must return a queue")
        if not 0 <= chosen < len(queues):
            raise ConfigError(f"the selector returned {chosen}, there are {len(queues)} queues")
        chosen = queues[chosen]
    elif chosen not in queues:
        raise ConfigError(f"the selector returned {chosen}, which is not among the topic's queues")
    return chosen.broker, chosen.queue_id


def with_properties(
    messages: Iterable[Body | Message], added: dict[str, str]
) -> Iterable[Body | Message]:
    """Add properties to the messages of a batch that are `Message` objects."""
    if not added:
        return messages
    return (
        message._replace(properties={**(message.properties or {}), **added})
        if isinstance(message, Message)
        else message
        for message in messages
    )


def handle_of(topic: str, handle: str) -> tuple[str, str]:
    """Read the broker name and the unique id in the recall handle of a timer message."""
    # Imported here: few programs need it.
    from base64 import urlsafe_b64decode

    try:
        text = urlsafe_b64decode(handle).decode()
        version, _, broker, _, message_id = text.split(" ")
    except ValueError:
        version = broker = message_id = ""
    if version != "v1" or not broker:
        raise ConfigError(
            f"{handle!r} is not a recall handle of topic `{topic}`: use the `recall_handle` of "
            "the result of a message with `delay` or `deliver_at`"
        )
    return broker, message_id


def start_of(start: Start) -> tuple[str, int]:
    """Read a start: a word, and a time in milliseconds."""
    if isinstance(start, datetime):
        return "timestamp", int(start.timestamp() * 1000)
    if start not in {"first", "last"}:
        raise ConfigError(f"start is {start!r}, it must be 'first', 'last' or a datetime")
    return start, 0


def topics_of(topic: str | Iterable[str]) -> list[str]:
    """Read one topic or several, each once."""
    return [topic] if isinstance(topic, str) else [*dict.fromkeys(topic)]


def queue_offsets_of(
    queues: Iterable[QueueId] | Mapping[QueueId, int | None],
) -> list[tuple[QueueId, int | None]]:
    """Read queues, each with an offset or None."""
    if isinstance(queues, Mapping):
        return [(queue, offset) for queue, offset in queues.items()]
    return [(queue, None) for queue in queues]


def committable(offsets: Mapping[QueueId, int]) -> list[tuple[QueueId, int]]:
    """Check offsets that are to be committed: brokers keep them as signed 64-bit numbers."""
    for queue, offset in offsets.items():
        given: object = offset
        if not isinstance(given, int) or not 0 <= given < 2**63:
            raise ConfigError(
                f"the offset of {queue} is {given!r}, it must be a whole number from 0 to 2**63 - 1"
            )
    return [*offsets.items()]


def all_sent(
    topic: str, outcome: tuple[list[SendResult | RmqError], Exception | None]
) -> list[SendResult]:
    """Return the results of a batch; raise if one failed or the call ended early."""
    results, ended_by = outcome
    failed = [result for result in results if isinstance(result, RmqError)]
    if failed or ended_by is not None:
        raise BatchSendError(topic, results, ended_by) from ended_by or failed[0]
    return cast("list[SendResult]", results)
