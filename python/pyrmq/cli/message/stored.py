"""`pyrmq message show | query | track | trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq._names import TRACE_TOPIC
from pyrmq.admin import Admin
from pyrmq.cli.arguments import add_name_server, parser
from pyrmq.cli.message.lines import as_object, body_text
from pyrmq.cli.output import print_json, print_rows, print_text
from pyrmq.cli.times import moment, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyrmq.message import ReceivedMessage


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq message` with these arguments."""
    given = _parser(verb).parse_args(words)
    work: Callable[[Admin, argparse.Namespace], None] = given.work
    with Admin(name_server=given.name_server) as admin:
        work(admin, given)
    return 0


def _show(admin: Admin, given: argparse.Namespace) -> None:
    message = admin.message(given.id, given.topic)
    if given.json:
        print_object(message)
        return
    rows: list[tuple[str, object]] = [
        ("topic", message.topic),
        ("queue", f"{message.broker} {message.queue_id}:{message.queue_offset}"),
        ("message id", message.message_id),
        ("offset message id", message.offset_message_id),
        ("keys", " ".join(message.keys)),
        ("tags", message.tags or ""),
        ("born", f"{shown(message.born_timestamp)} at {message.born_host}"),
        ("stored", f"{shown(message.store_timestamp)} at {message.store_host}"),
        ("tries before", message.reconsume_times),
        *[(f"property {name}", text) for name, text in message.properties.items()],
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_text(f"{name:<{width}}  {value}")
    print()
    print_text(body_text(message), keep_lines=True)


def _query(admin: Admin, given: argparse.Namespace) -> None:
    since = 0 if given.since is None else round(moment(given.since).timestamp() * 1000)
    found = admin.query_messages(given.topic, given.key, max_messages=given.max, begin_ms=since)
    if given.json:
        for message in found:
            print_object(message)
        return
    rows = [
        (
            message.broker,
            message.queue_id,
            message.queue_offset,
            shown(message.store_timestamp),
            message.message_id,
            body_text(message),
        )
        for message in found
    ]
    headers = ["broker", "queue", "offset", "stored", "message id", "body"]
    print_rows(headers, rows, as_json=False)


def _track(admin: Admin, given: argparse.Namespace) -> None:
    tracks = admin.track_message(admin.message(given.id, given.topic))
    rows = [(track.group, track.state) for track in tracks]
    print_rows(["group", "state"], rows, as_json=given.json)


def _trace(admin: Admin, given: argparse.Namespace) -> None:
    steps = admin.trace_message(given.id, trace_topic=given.trace_topic)
    rows = [
        (
            shown(step.time_ms),
            step.kind,
            step.group,
            step.result or None,
            step.cost_ms,
            step.retries if step.kind == "SubBefore" else None,
            step.client or None,
        )
        for step in steps
    ]
    headers = ["time", "step", "group", "result", "cost ms", "retries", "client"]
    print_rows(headers, rows, as_json=given.json)


def print_object(message: ReceivedMessage) -> None:
    """Print a message as one JSON object."""
    print_json(as_object(message))


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(verb, "Find stored messages.")
    verbs = made.add_subparsers(required=True, metavar="show|query|track|trace")
    show = verbs.add_parser("show", help="show one message in full", allow_abbrev=False)
    query = verbs.add_parser("query", help="list the messages with a key", allow_abbrev=False)
    track = verbs.add_parser(
        "track", help="show which groups have consumed a message", allow_abbrev=False
    )
    trace = verbs.add_parser("trace", help="show the steps that clients traced", allow_abbrev=False)
    trace.add_argument("id", help="message id")
    trace.add_argument(
        "--trace-topic",
        default=TRACE_TOPIC,
        metavar="TOPIC",
        help="where clients write traces (default: RMQ_SYS_TRACE_TOPIC)",
    )
    for each in (show, track):
        each.add_argument("id", help="message id, or the id that contains the broker's address")
        each.add_argument("--topic", help="topic; required for a message id")
    query.add_argument("topic", help="topic")
    query.add_argument("key", help="key")
    query.add_argument("--since", metavar="TIME", help="only messages stored since: 10m, or a time")
    query.add_argument(
        "--max",
        type=int,
        default=64,
        metavar="N",
        help="maximum number of messages per broker (default: 64)",
    )
    for each, work in ((show, _show), (query, _query), (track, _track), (trace, _trace)):
        add_name_server(each)
        each.set_defaults(work=work)
    return made
