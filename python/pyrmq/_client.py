"""What producer, consumer, admin and their asyncio forms share: addresses and message extras."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from pyrmq.errors import ConfigError
from pyrmq.message import QueueId

__all__ = [
    "PLAIN",
    "Extras",
    "Start",
    "at_least_one",
    "milliseconds",
    "name_servers",
    "places_of",
    "queue_of",
    "start_of",
]

Start = Literal["first", "last"] | datetime
"""Where a group begins in a queue that it has never committed."""

NAMESRV_ADDR = "NAMESRV_ADDR"


def name_servers(given: str | Sequence[str] | None) -> list[str]:
    """Read name server addresses: `host:port;host:port`, a sequence, or the environment."""
    if given is None:
        given = os.environ.get(NAMESRV_ADDR, "")
        if not given:
            raise ConfigError(
                "no name server is given: pass name_server='host:port;host:port', "
                f"or set the environment variable {NAMESRV_ADDR}"
            )
    parts = given.replace(",", ";").split(";") if isinstance(given, str) else list(given)
    addresses = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not addresses:
        raise ConfigError("option `name_server` is empty, it must be `host:port;host:port`")
    return addresses


def milliseconds(option: str, seconds: float) -> int:
    """Turn a time in seconds into whole milliseconds, at least 1 unless it is 0."""
    if not seconds >= 0:
        raise ConfigError(f"option `{option}` is {seconds}, it must be a time of 0 s or more")
    return max(1, round(seconds * 1000)) if seconds else 0


def at_least_one(option: str, count: int) -> int:
    """Refuse a count that would never be reached."""
    if count < 1:
        raise ConfigError(f"option `{option}` is {count}, it must be at least 1")
    return count


def queue_of(topic: str, queue: int | QueueId | None) -> tuple[str, int] | None:
    """Read the queue that a caller names: a number, or a queue of this topic."""
    if queue is None:
        return None
    if isinstance(queue, int):
        return "", queue
    if queue.topic != topic:
        raise ConfigError(f"queue {queue} is not of topic `{topic}`")
    return queue.broker, queue.queue_id


class Extras:
    """What a message has beside topic and body. The native module reads these attributes."""

    __slots__ = ("delay_level", "flag", "keys", "properties", "sharding_key", "tags")

    def __init__(
        self,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        flag: int = 0,
    ) -> None:
        self.keys = keys
        self.tags = tags
        self.properties = (
            properties if properties is None or isinstance(properties, dict) else dict(properties)
        )
        self.sharding_key = sharding_key
        self.delay_level = delay_level
        self.flag = flag


PLAIN = Extras()


def start_of(start: Start) -> tuple[str, int]:
    """Read where to start: a word, and a time in milliseconds."""
    if isinstance(start, datetime):
        return "timestamp", int(start.timestamp() * 1000)
    if start not in {"first", "last"}:
        raise ConfigError(f"start is {start!r}, it must be 'first', 'last' or a datetime")
    return start, 0


def places_of(
    queues: Iterable[QueueId] | Mapping[QueueId, int | None],
) -> list[tuple[QueueId, int | None]]:
    """Read queues, each with an offset or None."""
    if isinstance(queues, Mapping):
        return [(queue, offset) for queue, offset in queues.items()]
    return [(queue, None) for queue in queues]
