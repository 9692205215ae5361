"""`pyrmq tail`: prints the messages of a topic from any position on, as they arrive."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from pyrmq._names import TOOLS_GROUP
from pyrmq.admin import Admin
from pyrmq.cli.arguments import add_name_server, parser, positive
from pyrmq.cli.message.lines import as_object, body_text, by_template
from pyrmq.cli.output import print_json, print_text
from pyrmq.errors import ConfigError, ConnectionLost

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from pyrmq.consumer import PullConsumer
    from pyrmq.message import QueueId, ReceivedMessage

# Apache's group for tools: every broker has it, and no application consumes with it.
GROUP = TOOLS_GROUP
_LINES = 1000
_POLL_SECONDS = 0.2
_SILENCE_SECONDS = 10.0
"""A restarted broker is back by then, and its messages arrive."""


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq tail` with these arguments."""
    given = _parser(verb).parse_args(words)
    write = _writer(given)
    with Admin(name_server=given.name_server) as admin:
        # First, since a consumer waits for a topic that does not exist.
        admin.route(given.topic)
        if given.group is not None:
            admin.require_group(given.group)
    from pyrmq.consumer import PullConsumer

    with PullConsumer(
        name_server=given.name_server, group=given.group or GROUP, auto_commit=None
    ) as consumer:
        # Assigned, not shared with a group: this takes no messages from other consumers, and
        # nothing is committed.
        bounds = Bounds.of(consumer, _chosen(consumer, given.topic, given.queue))
        consumer.assign(_starts(consumer, bounds, given), given.tags)
        until = bounds.ends if given.stop else None
        matching = filter(_filter(given), messages(consumer, until))
        for count, message in enumerate(matching, 1):
            write(message)
            if count == given.count:
                break
    return 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of each queue when the command began."""

    begins: dict[QueueId, int]
    ends: dict[QueueId, int]

    @classmethod
    def of(cls, consumer: PullConsumer, queues: Iterable[QueueId]) -> Bounds:
        """Request the ranges of queues."""
        found = {queue: consumer.bounds(queue) for queue in queues}
        return cls(
            {queue: begin for queue, (begin, _) in found.items()},
            {queue: end for queue, (_, end) in found.items()},
        )


def messages(consumer: PullConsumer, ends: dict[QueueId, int] | None) -> Iterable[ReceivedMessage]:
    """The messages of the consumer's queues, up to these offsets or without end.

    Raises:
        ConnectionLost: queues that are not at their end delivered nothing for some time.
    """
    last = monotonic()
    while ends is None or (left := _unread(consumer, ends)):
        # Flush for each poll: a pipe would show it later.
        sys.stdout.flush()
        found = consumer.poll(_LINES, None if ends is None else _POLL_SECONDS)
        yield from found
        if found:
            last = monotonic()
        elif ends is not None and monotonic() - last > _SILENCE_SECONDS:
            places = ", ".join(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker} at offset "
                f"{consumer.position(queue)} of {ends[queue]}"
                for queue in left
            )
            raise ConnectionLost(f"no message arrived for {_SILENCE_SECONDS:g} s: {places}")


def _unread(consumer: PullConsumer, ends: dict[QueueId, int]) -> list[QueueId]:
    return [queue for queue, end in ends.items() if consumer.position(queue) < end]


def _chosen(consumer: PullConsumer, topic: str, number: int | None) -> list[QueueId]:
    queues = consumer.queues(topic)
    chosen = [queue for queue in queues if number is None or queue.queue_id == number]
    if not chosen:
        raise ConfigError(
            f"no broker has queue {number} of `{topic}`; there are "
            f"{', '.join(str(one) for one in sorted({queue.queue_id for queue in queues}))}"
        )
    return chosen


def _starts(
    consumer: PullConsumer, bounds: Bounds, given: argparse.Namespace
) -> dict[QueueId, int]:
    """The first offset of each queue that is printed."""
    if given.offset is not None:
        if given.queue is None:
            raise ConfigError("`--offset` needs `--queue`: each queue has offsets of its own")
        return dict.fromkeys(bounds.begins, given.offset)
    if given.since is not None:
        from pyrmq.cli.times import moment

        since = moment(given.since)
        # A seek by time requests the offset.
        consumer.assign(bounds.ends)
        for queue in bounds.ends:
            consumer.seek(queue, since)
        return {queue: consumer.position(queue) for queue in bounds.ends}
    first = bounds.begins if given.start == "first" else bounds.ends
    if given.group is None:
        return dict(first)
    committed = {queue: consumer.committed(queue) for queue in first}
    return {queue: first[queue] if at is None else at for queue, at in committed.items()}


def _filter(given: argparse.Namespace) -> Callable[[ReceivedMessage], bool]:
    """Keys and conditions are compared here, so it works with every broker."""
    condition = None
    if given.sql is not None:
        from pyrmq.routing import Filter

        condition = Filter(given.sql)

    def passes(message: ReceivedMessage) -> bool:
        return (given.key is None or given.key in message.keys) and (
            condition is None or condition.matches(message.properties)
        )

    return passes


def _writer(given: argparse.Namespace) -> Callable[[ReceivedMessage], None]:
    if given.format is not None:
        return lambda message: print_text(by_template(given.format, message), keep_lines=True)
    if not given.json:
        return _print
    return lambda message: print_json(as_object(message))


def _print(message: ReceivedMessage) -> None:
    label = "".join(f" {value}" for value in (message.tags, *message.keys) if value)
    place = f"{message.broker} {message.queue_id}:{message.queue_offset}"
    print_text(f"{place}{label}  {body_text(message)}")


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(verb, "Print the messages of a topic as they arrive, until Ctrl-C.")
    made.add_argument("topic", help="topic")
    add_name_server(made)
    begin = made.add_mutually_exclusive_group()
    begin.add_argument(
        "--from",
        dest="start",
        choices=["first", "last"],
        default="last",
        help="start with the oldest message, or with the next one (default: last)",
    )
    begin.add_argument(
        "--since", metavar="TIME", help="start at an age (10m, 2h) or a time (2026-11-23T14:05)"
    )
    begin.add_argument(
        "--offset", type=int, metavar="N", help="start at this offset; needs --queue"
    )
    begin.add_argument("--group", help="start at this consumer group's offsets; commits nothing")
    made.add_argument("--queue", type=int, metavar="NUMBER", help="only this queue of each broker")
    made.add_argument("--tags", default="*", help="`a || b`: only these tags (default: *)")
    made.add_argument("--key", help="only messages with this key")
    made.add_argument(
        "--sql", metavar="CONDITION", help="only messages whose properties match: `price > 10`"
    )
    made.add_argument(
        "--format", metavar="TEMPLATE", help="such as `{time} {queue}:{offset} {keys} {body}`"
    )
    made.add_argument("--count", type=positive, metavar="N", help="end after N messages")
    ending = made.add_mutually_exclusive_group()
    ending.add_argument("--stop", action="store_true", help="end after the messages that exist now")
    ending.add_argument(
        "--follow", action="store_true", help="continue with new messages (the default)"
    )
    return made
