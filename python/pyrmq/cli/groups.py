"""`pyrmq group list | describe | lag | seek | mode | delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyrmq._names import (
    FILTER_SERVER_GROUP,
    ONS_API_OWNER_GROUP,
    ONS_API_PERMISSION_GROUP,
    ONS_API_PULL_GROUP,
    ONS_HTTP_PROXY_GROUP,
    SELF_TEST_GROUP,
    SYSTEM_GROUP_PREFIX,
    TOOLS_GROUP,
)
from pyrmq.admin import Admin
from pyrmq.cli.arguments import add_name_server, natural, parser, seconds
from pyrmq.cli.output import print_rows
from pyrmq.errors import ConfigError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from datetime import datetime

# Apache's internal groups (`MixAll`, `PopAckConstants`).
_OWN = frozenset(
    {
        TOOLS_GROUP,
        FILTER_SERVER_GROUP,
        SELF_TEST_GROUP,
        ONS_HTTP_PROXY_GROUP,
        ONS_API_PERMISSION_GROUP,
        ONS_API_OWNER_GROUP,
        ONS_API_PULL_GROUP,
        "CID_DefaultHeartBeatSyncerTopic",
    }
)
# Settings that differ in practice, by Apache's names.
_SETTINGS = ("consumeEnable", "consumeMessageOrderly", "retryMaxTimes", "retryQueueNums")


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq group` with these arguments."""
    given = _parser(verb).parse_args(words)
    work: Callable[[Admin, argparse.Namespace], int | None] = given.work
    with Admin(name_server=given.name_server, timeout=given.timeout) as admin:
        return work(admin, given) or 0


def _list(admin: Admin, given: argparse.Namespace) -> None:
    groups = admin.groups(given.topic) if given.topic else admin.consumer_groups()
    own = () if given.all else [name for name in groups if _is_own(name)]
    rows = [(group,) for group in groups if group not in own]
    print_rows(["group"], rows, as_json=given.json)


def _is_own(group: str) -> bool:
    return group in _OWN or group.startswith(SYSTEM_GROUP_PREFIX)


def _describe(admin: Admin, given: argparse.Namespace) -> None:
    found = admin.describe_group(given.group)
    settings = {name: found.config[name] for name in _SETTINGS if name in found.config}
    if given.json:
        headers = [
            "group",
            "consume type",
            "message model",
            "subscriptions",
            "settings",
            "members",
            "conflicts",
        ]
        members = [
            {"client_id": one.client_id, "address": one.address, "language": one.language}
            for one in found.members
        ]
        row = (
            found.group,
            found.consume_type,
            found.message_model,
            dict(found.subscriptions),
            settings,
            members,
            [
                {"topic": topic, "filter": expression, "clients": [*clients]}
                for topic, filters in found.conflicts.items()
                for expression, clients in filters.items()
            ],
        )
        print_rows(headers, [row], as_json=True)
        return
    rows = [(one.client_id, one.address, one.language) for one in found.members]
    if rows:
        print_rows(["client", "address", "language"], rows, as_json=False)
        print(f"{found.consume_type}, {found.message_model}")
    else:
        print("no member is connected")
    for topic, expression in found.subscriptions.items():
        print(f"subscribes to {topic}: {expression}")
    for topic, filters in found.conflicts.items():
        print(f"members subscribe to {topic} differently; give all of them the same filter:")
        for conflicting, clients in filters.items():
            print(f"  {conflicting or 'not at all'}: {', '.join(clients)}")
    print(", ".join(f"{name}={_text(value)}" for name, value in settings.items()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lag(admin: Admin, given: argparse.Namespace) -> int:
    lags = admin.consumer_lag(given.group, given.topic)
    rows = [
        (
            queue.topic,
            queue.broker,
            queue.queue_id,
            lag.messages,
            lag.in_flight,
            round(lag.seconds, 3),
        )
        for queue, lag in lags.items()
    ]
    headers = ["topic", "broker", "queue", "lag", "in flight", "seconds"]
    print_rows(headers, rows, as_json=given.json)
    if not given.json:
        most = max((lag.seconds for lag in lags.values()), default=0.0)
        print(f"{sum(lag.messages for lag in lags.values())} messages behind, {most:.1f} s")
    if given.max is None:
        return 0
    return 1 if sum(lag.messages for lag in lags.values()) > given.max else 0


def _seek(admin: Admin, given: argparse.Namespace) -> None:
    queue = None
    if given.queue is not None:
        broker, colon, number = given.queue.rpartition(":")
        if not colon or not number.isdecimal():
            raise ConfigError(f"`--queue` is {given.queue!r}: it must be BROKER:NUMBER")
        queue = QueueId(given.topic, broker, int(number))
    moved = admin.reset_offsets(given.group, given.topic, _target(given.to), queue=queue)
    rows = [(one.topic, one.broker, one.queue_id, offset) for one, offset in moved.items()]
    print_rows(["topic", "broker", "queue", "offset"], rows, as_json=given.json)


def _target(text: str) -> int | Literal["first", "last"] | datetime:
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    if text.isdecimal():
        return int(text)
    from pyrmq.cli.times import moment

    return moment(text)


def _mode(admin: Admin, given: argparse.Namespace) -> None:
    if given.mode is None and given.share is not None:
        raise ConfigError("`--share` needs the mode `pop`: name it too")
    if given.mode is not None:
        admin.set_consume_mode(given.group, given.topic, given.mode, share=given.share or 0)
    modes = admin.consume_modes(given.group, given.topic)
    if not any(found.mode for found in modes.values()):
        admin.require_group(given.group)
    rows = [
        (given.group, given.topic, broker, _text(found.mode or "not set"), found.share)
        for broker, found in modes.items()
    ]
    print_rows(["group", "topic", "broker", "mode", "share"], rows, as_json=given.json)


def _delete(admin: Admin, given: argparse.Namespace) -> None:
    admin.delete_group(given.group, keep_offsets=given.keep_offsets)
    if given.json:
        print_rows(["group"], [(given.group,)], as_json=True)
    else:
        print(f"deleted {given.group}")


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(verb, "List, describe, move, switch or delete consumer groups.")
    verbs = made.add_subparsers(required=True, metavar="list|describe|lag|seek|mode|delete")
    for name, text, options, work in (
        ("list", "list the names of groups", _list_options, _list),
        ("describe", "show members, subscriptions and settings", _group_option, _describe),
        ("lag", "show how far a group is behind, in messages and seconds", _lag_options, _lag),
        ("seek", "move a group to other offsets", _seek_options, _seek),
        ("mode", "set how push consumers get a topic: pop or pull", _mode_options, _mode),
        ("delete", "delete a group with its offsets", _delete_options, _delete),
    ):
        one = verbs.add_parser(name, help=text, allow_abbrev=False)
        options(one)
        add_name_server(one)
        one.add_argument(
            "--timeout",
            type=seconds,
            default=5.0,
            metavar="SECONDS",
            help="limit for each request; all brokers are asked at once (default: 5)",
        )
        one.set_defaults(work=work)
    return made


def _list_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--topic", help="only groups that consume this topic")
    to.add_argument("--all", action="store_true", help="include the system's groups")


def _group_option(to: argparse.ArgumentParser) -> None:
    to.add_argument("group", help="consumer group")


def _lag_options(to: argparse.ArgumentParser) -> None:
    _group_option(to)
    to.add_argument("--topic", help="only this topic")
    to.add_argument(
        "--max",
        type=natural,
        metavar="N",
        help="probe: exit with status 1 if more than N messages behind",
    )


def _seek_options(to: argparse.ArgumentParser) -> None:
    _group_option(to)
    to.add_argument("topic", help="topic")
    to.add_argument(
        "to", help="first, last, an age (10m), a time (2026-11-23T14:05), or an offset with --queue"
    )
    to.add_argument("--queue", metavar="BROKER:NUMBER", help="only this queue")


def _mode_options(to: argparse.ArgumentParser) -> None:
    _group_option(to)
    to.add_argument("topic", help="topic")
    to.add_argument("mode", nargs="?", choices=("pop", "pull"), help="default: show the mode")
    to.add_argument(
        "--share",
        type=int,
        metavar="N",
        help="number of other members that also pop each member's queues; 0: all",
    )


def _delete_options(to: argparse.ArgumentParser) -> None:
    _group_option(to)
    to.add_argument(
        "--keep-offsets", action="store_true", help="keep its offsets for a new group of this name"
    )
