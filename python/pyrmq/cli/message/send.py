"""`pyrmq send`."""

from __future__ import annotations

import sys
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyrmq._names import TOOLS_GROUP
from pyrmq.cli.arguments import add_name_server, parser
from pyrmq.cli.output import counted, print_rows
from pyrmq.errors import BatchSendError, ConfigError, RmqError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from pyrmq.message import SendResult

_GROUP = TOOLS_GROUP
_LINES = 1000
_SENT = ("topic", "broker", "queue", "offset", "status", "message id")


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq send` with these arguments."""
    given = _parser(verb).parse_args(words)
    if given.from_json:
        return _send_again(given)
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
            first = count + 1
            try:
                results = producer.send_batch(given.topic, lines, **extras)
            except RmqError as error:
                raise _batch_stopped(first, lines, count, error) from error
            count += len(results)
            if given.json:
                _say(results, as_json=True)
    if not given.json:
        print(f"sent {count} messages to {given.topic}")
    return 0


def _send_again(given: argparse.Namespace) -> int:
    """Send the lines of `pyrmq tail --json`: each with its own keys, tag and properties."""
    if given.body != "-":
        raise ConfigError("`--from-json` reads standard input: the body must be -")
    from pyrmq.cli.message.lines import of_object
    from pyrmq.producer import Producer

    count = number = 0
    with Producer(name_server=given.name_server, group=_GROUP) as producer:
        for lines in _batches():
            sent: list[tuple[int, Future[SendResult]]] = []
            wrong: tuple[int, RmqError] | None = None
            for at, line in enumerate(lines, number + 1):
                if not line:
                    continue
                try:
                    body, extras = of_object(line)
                    future = producer.send_async(given.topic, body, queue=given.queue, **extras)
                except RmqError as error:
                    wrong = (at, error)
                    break
                sent.append((at, future))
            number += len(lines)
            results = []
            for at, future in sent:
                try:
                    results.append(future.result())
                except RmqError as error:
                    wrong = min(wrong or (at, error), (at, error), key=itemgetter(0))
            count += len(results)
            if wrong is not None:
                raise _stopped(f"line {wrong[0]}", count, wrong[1]) from wrong[1]
            if given.json:
                _say(results, as_json=True)
    if not given.json:
        print(f"sent {count} messages to {given.topic}")
    return 0


def _batch_stopped(first: int, lines: list[bytes], sent: int, error: RmqError) -> RmqError:
    results = error.results if isinstance(error, BatchSendError) else []
    wrong = [at for at, one in enumerate(results, first) if isinstance(one, BaseException)]
    place = f"line {wrong[0]}" if wrong else f"lines {first} to {first + len(lines) - 1}"
    return _stopped(place, sent + len(results) - len(wrong), error)


def _stopped(lines: str, sent: int, error: RmqError) -> RmqError:
    """The error with its line numbers; an error in a line stays a `ConfigError`."""
    text = f"{lines} of standard input: {error}; sent {counted(sent, 'message')} of it"
    return ConfigError(text) if isinstance(error, ConfigError) else RmqError(text)


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


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(verb, "Send one message; with body `-`, one for each line of standard input.")
    made.add_argument("topic", help="topic; the broker creates it if allowed")
    made.add_argument("body", help="text of the message, or - for standard input")
    add_name_server(made)
    made.add_argument(
        "-k", "--keys", action="append", help="key to find the message by; repeatable"
    )
    made.add_argument("-t", "--tags", metavar="TAG", help="tag that consumers filter by")
    made.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="repeatable"
    )
    made.add_argument(
        "--sharding-key", metavar="KEY", help="messages with the same key go to the same queue"
    )
    made.add_argument("--queue", type=int, metavar="NUMBER", help="queue to send to")
    made.add_argument(
        "--from-json",
        action="store_true",
        help="standard input is output of `pyrmq tail --json`: bodies, keys, tags, properties",
    )
    return made
