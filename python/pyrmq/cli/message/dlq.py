"""`pyrmq dlq list | resend`: the dead letters of a group."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyrmq._names import DLQ_PREFIX, PERM_READ, Property
from pyrmq.admin import Admin
from pyrmq.cli.arguments import add_name_server, parser, positive
from pyrmq.cli.message.lines import as_object, body_text
from pyrmq.cli.message.tail import GROUP, Bounds, messages
from pyrmq.cli.output import counted, print_json, print_rows, show_progress
from pyrmq.cli.times import moment, shown
from pyrmq.errors import RouteError, TopicNotFound

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from pyrmq.message import ReceivedMessage

_EACH = 100


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq dlq` with these arguments."""
    given = _parser(verb).parse_args(words)
    work: Callable[[argparse.Namespace], int] = given.work
    return work(given)


def _list(given: argparse.Namespace) -> int:
    if given.json:
        for message in _letters(given):
            print_json(as_object(message))
        return 0
    rows = [
        (
            message.broker,
            message.queue_offset,
            shown(message.store_timestamp),
            message.properties.get(Property.RETRY_TOPIC),
            message.reconsume_times,
            message.message_id,
            body_text(message),
        )
        for message in _letters(given)
    ]
    headers = ["broker", "offset", "stored", "topic", "tries", "message id", "body"]
    print_rows(headers, rows, as_json=False)
    return 0


def _resend(given: argparse.Namespace) -> int:
    count = 0
    is_sending = False
    total: list[int] = []
    # Progress of each queue, so that an error or Ctrl-C can report what was sent again.
    reached: dict[tuple[str, int], int] = {}
    try:
        with Admin(name_server=given.name_server) as admin:
            for message in _letters(given, total):
                is_sending = True
                admin.resend_dead_letter(given.group, message)
                count += 1
                reached[message.broker, message.queue_id] = message.queue_offset
                if given.json:
                    print_rows(["message id"], [(message.message_id,)], as_json=True)
                elif count % _EACH == 0:
                    show_progress(f"{count} of {sum(total)}")
    except BaseException:
        _wipe(count, given)
        if is_sending:
            print(_stopped(count, reached), file=sys.stderr)
        raise
    _wipe(count, given)
    if not given.json:
        said = f"sent {counted(count, 'message')} to {given.group} again"
        print(f"{said}, of {counted(sum(total), 'dead letter')}")
    return 0


def _wipe(count: int, given: argparse.Namespace) -> None:
    if count >= _EACH and not given.json:
        show_progress("")


def _stopped(count: int, reached: dict[tuple[str, int], int]) -> str:
    places = ", ".join(
        f"broker {broker} queue {queue} to offset {offset}"
        for (broker, queue), offset in sorted(reached.items())
    )
    if not count:
        return "stopped: no message was confirmed; one may have been sent again"
    return (
        f"stopped: {count} messages were sent again ({places}); the next one may have been, too. "
        "They are still in the dead-letter topic, and another run sends them once more"
    )


def _letters(
    given: argparse.Namespace, total: list[int] | None = None
) -> Iterator[ReceivedMessage]:
    """The requested dead letters among those that exist now, oldest first in each queue.

    Args:
        given: the arguments.
        total: gets the number of all dead letters in each queue, requested or not.
    """
    since = 0 if given.since is None else round(moment(given.since).timestamp() * 1000)
    left = given.max
    with Admin(name_server=given.name_server) as admin:
        try:
            route = admin.route(DLQ_PREFIX + given.group)
        except TopicNotFound:
            # The first dead letter of a group creates the topic.
            admin.require_group(given.group)
            return
    closed = sorted(queues.broker for queues in route.queues if not queues.perm & PERM_READ)
    if closed:
        raise RouteError(
            f"the dead letters of `{given.group}` at {', '.join(closed)} cannot be read: their "
            "topic permits writing only, as Apache's brokers before 4.9.2 create it. Fix: "
            f"pyrmq topic create '{route.topic}' --queues 1",
            topic=route.topic,
        )
    # Importing a consumer takes a third of the time of a command that has nothing to list.
    from pyrmq.consumer import PullConsumer

    with PullConsumer(name_server=given.name_server, group=GROUP, auto_commit=None) as consumer:
        queues = consumer.queues(DLQ_PREFIX + given.group)
        bounds = Bounds.of(consumer, queues)
        if total is not None:
            total += [end - bounds.begins[queue] for queue, end in bounds.ends.items()]
        consumer.assign(bounds.begins)
        for message in messages(consumer, bounds.ends):
            # Including later ones would make `resend` endless.
            is_new = message.queue_offset >= _end_of(bounds, message)
            if is_new or message.store_timestamp < since:
                continue
            if given.id is not None and given.id != message.message_id:
                continue
            if given.key is not None and given.key not in message.keys:
                continue
            yield message
            if left is not None:
                left -= 1
                if left == 0:
                    return


def _end_of(bounds: Bounds, message: ReceivedMessage) -> int:
    ends = bounds.ends.items()
    return next(
        end
        for queue, end in ends
        if (queue.broker, queue.queue_id) == (message.broker, message.queue_id)
    )


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(verb, "List the dead letters of a group, or send them to it again.")
    verbs = made.add_subparsers(required=True, metavar="list|resend")
    listing = verbs.add_parser("list", help="list the dead letters", allow_abbrev=False)
    resend = verbs.add_parser(
        "resend",
        help="send them to the group again, with all retries; they stay in the dead-letter topic",
        allow_abbrev=False,
    )
    for each, work in ((listing, _list), (resend, _resend)):
        each.add_argument("group", help="consumer group")
        each.add_argument("--id", help="only the message with this id")
        each.add_argument("--key", help="only messages with this key")
        each.add_argument("--since", metavar="TIME", help="only those stored since: 10m, or a time")
        each.add_argument("--max", type=positive, metavar="N", help="at most N")
        add_name_server(each)
        each.set_defaults(work=work)
    return made
