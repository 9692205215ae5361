"""`pyrmq send` and `pyrmq tail`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyrmq.cli.arguments import add_name_server, parser
from pyrmq.cli.output import print_rows
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pyrmq.consumer import PullConsumer
    from pyrmq.message import QueueId, ReceivedMessage, SendResult

# Apache's group for tools: every broker has it, and nobody consumes with it.
_GROUP = "TOOLS_CONSUMER"
_LINES = 1000
_SENT = ("topic", "broker", "queue", "offset", "status", "message id")


def run(verb: str, words: list[str]) -> int:
    """Run the command `verb` with these arguments."""
    return _send(words) if verb == "send" else _tail(words)


def _send(words: list[str]) -> int:
    given = _send_parser().parse_args(words)
    from pyrmq.producer import Producer

    extras: dict[str, Any] = {
        "keys": given.keys,
        "tags": given.tags,
        "properties": dict(map(_pair, given.property)) or None,
        "sharding_key": given.sharding_key,
        "queue": given.queue,
    }
    with Producer(name_server=given.name_server, group=_GROUP) as producer:
        if given.body != "-":
            _say([producer.send(given.topic, given.body, **extras)], as_json=given.json)
            return 0
        count = 0
        for lines in _batches():
            results = producer.send_batch(given.topic, lines, **extras)
            count += len(results)
            if given.json:
                _say(results, as_json=True)
    if not given.json:
        print(f"sent {count} messages to {given.topic}")
    return 0


def _batches() -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for line in sys.stdin.buffer:
        batch.append(line.rstrip(b"\r\n"))
        if len(batch) == _LINES:
            yield batch
            batch = []
    if batch:
        yield batch


def _say(results: Sequence[SendResult], *, as_json: bool) -> None:
    rows = [
        (
            result.topic,
            result.broker,
            result.queue_id,
            result.queue_offset,
            result.status.name,
            result.message_id,
        )
        for result in results
    ]
    print_rows(_SENT, rows, as_json=as_json)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"`--property` is {text!r}: it must be KEY=VALUE")
    return key, value


def _tail(words: list[str]) -> int:
    given = _tail_parser().parse_args(words)
    from pyrmq.consumer import PullConsumer

    with PullConsumer(name_server=given.name_server, group=_GROUP, auto_commit=None) as consumer:
        bounds = {queue: consumer.bounds(queue) for queue in consumer.queues(given.topic)}
        # Assigned, not shared with a group: this takes no messages from other consumers.
        # The offsets are explicit: what other tools commit for their group does not matter.
        first = given.start == "first"
        consumer.assign(
            {q: begin if first else end for q, (begin, end) in bounds.items()}, given.tags
        )
        ends = {queue: end for queue, (_, end) in bounds.items()} if given.stop else None
        left = given.count
        while (left is None or left > 0) and not _at_end(consumer, ends):
            most = _LINES if left is None else min(left, _LINES)
            messages = consumer.poll(most, 0.2 if given.stop else None)
            for message in messages:
                _print(message, as_json=given.json)
            sys.stdout.flush()
            if left is not None:
                left -= len(messages)
    return 0


def _at_end(consumer: PullConsumer, ends: dict[QueueId, int] | None) -> bool:
    if ends is None:
        return False
    return all(consumer.position(queue) >= end for queue, end in ends.items())


def _print(message: ReceivedMessage, *, as_json: bool) -> None:
    body = bytes(message.body)
    text = body.decode("utf-8", "backslashreplace")
    if not as_json:
        label = "".join(f" {value}" for value in (message.tags, *message.keys) if value)
        print(f"{message.broker} {message.queue_id}:{message.queue_offset}{label}  {text}")
        return
    import json

    tree = {
        "topic": message.topic,
        "broker": message.broker,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "keys": list(message.keys),
        "tags": message.tags,
        "properties": dict(message.properties),
        "message_id": message.message_id,
        "body": text,
    }
    print(json.dumps(tree, ensure_ascii=False))


def _send_parser() -> argparse.ArgumentParser:
    made = parser("send", "Send one message; with body `-`, one for each line of standard input.")
    made.add_argument("topic", help="topic; the broker creates it if it may")
    made.add_argument("body", help="text of the message, or - for standard input")
    add_name_server(made)
    made.add_argument("-k", "--keys", action="append", help="a key to find it by; may be repeated")
    made.add_argument("-t", "--tags", metavar="TAG", help="tag that consumers filter by")
    made.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
    )
    made.add_argument("--sharding-key", metavar="KEY", help="the same key, the same queue")
    made.add_argument("--queue", type=int, metavar="NUMBER", help="queue to send to")
    return made


def _tail_parser() -> argparse.ArgumentParser:
    made = parser("tail", "Print the messages of a topic as they come, until Ctrl-C.")
    made.add_argument("topic", help="topic")
    add_name_server(made)
    made.add_argument(
        "--from",
        dest="start",
        choices=["first", "last"],
        default="last",
        help="begin with the oldest message, or with the next one (default: last)",
    )
    made.add_argument("--tags", default="*", help="`a || b`: only these tags (default: *)")
    made.add_argument("--count", type=int, metavar="N", help="end after N messages")
    made.add_argument("--stop", action="store_true", help="end after the messages that exist now")
    return made
