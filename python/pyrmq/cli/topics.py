"""`pyrmq topic list | create | describe | delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq._names import INTERNAL_PREFIXES, PERM_READ, PERM_WRITE, TOOLS_GROUP, reply_topic
from pyrmq.admin import Admin
from pyrmq.cli.arguments import add_name_server, parser
from pyrmq.cli.output import print_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_PERMISSIONS = {
    0: "-",
    PERM_WRITE: "write",
    PERM_READ: "read",
    PERM_READ | PERM_WRITE: "read, write",
}


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq topic` with these arguments."""
    given = _parser(verb).parse_args(words)
    work: Callable[[Admin, argparse.Namespace], None] = given.work
    with Admin(name_server=given.name_server) as admin:
        work(admin, given)
    return 0


def _list(admin: Admin, given: argparse.Namespace) -> None:
    hidden = set() if given.all else _system_names(admin)
    topics = [topic for topic in admin.topics() if given.all or not _is_system(topic, hidden)]
    if given.names:
        print_rows(["topic"], [(topic,) for topic in topics], as_json=given.json)
        return
    rows = []
    for topic in topics:
        queues = admin.route(topic).queues
        rows.append(
            (
                topic,
                ", ".join(queue.broker for queue in queues),
                sum(queue.read_queues for queue in queues),
                sum(queue.write_queues for queue in queues),
                " / ".join(sorted({_permission(queue.perm) for queue in queues})),
            )
        )
    headers = ["topic", "brokers", "read queues", "write queues", "permission"]
    print_rows(headers, rows, as_json=given.json)


def _create(admin: Admin, given: argparse.Namespace) -> None:
    admin.create_topic(given.topic, queues=given.queues, cluster=given.cluster)
    _said(given, f"created {given.topic} with {given.queues} queues on each broker")


def _delete(admin: Admin, given: argparse.Namespace) -> None:
    admin.delete_topic(given.topic, cluster=given.cluster)
    _said(given, f"deleted {given.topic}")


def _describe(admin: Admin, given: argparse.Namespace) -> None:
    stats = admin.topic_stats(given.topic)
    rows = [
        (
            queue.broker,
            queue.queue_id,
            offsets.first,
            offsets.last,
            offsets.last - offsets.first,
            _time(offsets.updated_ms),
        )
        for queue, offsets in stats.items()
    ]
    headers = ["broker", "queue", "first", "next", "messages", "last message"]
    print_rows(headers, rows, as_json=given.json)
    if not given.json:
        groups = ", ".join(group for group in admin.groups(given.topic) if group != TOOLS_GROUP)
        count = sum(row[4] for row in rows)
        messages = "1 message" if count == 1 else f"{count} messages"
        print(f"{messages}; consumer groups: {groups or 'none'}")


def _said(given: argparse.Namespace, text: str) -> None:
    if given.json:
        print_rows(["topic"], [(given.topic,)], as_json=True)
    else:
        print(text)


def _system_names(admin: Admin) -> set[str]:
    clusters = admin.cluster()
    replies = {reply_topic(cluster) for cluster in clusters}
    brokers = {broker.name for members in clusters.values() for broker in members}
    return {*clusters, *replies, *brokers}


def _is_system(topic: str, names: set[str]) -> bool:
    return topic in _core.SYSTEM_TOPICS or topic in names or topic.startswith(INTERNAL_PREFIXES)


def _permission(bits: int) -> str:
    return _PERMISSIONS.get(bits & (PERM_READ | PERM_WRITE), str(bits))


def _time(milliseconds: int) -> str | None:
    if milliseconds <= 0:
        return None
    from datetime import datetime

    # In the user's time zone.
    moment = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    return moment.isoformat(" ", "seconds")


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(verb, "List, create, describe or delete topics.")
    verbs = made.add_subparsers(required=True, metavar="list|create|describe|delete")
    listing = verbs.add_parser("list", help="list topics with their queues", allow_abbrev=False)
    listing.add_argument("--all", action="store_true", help="include the system's topics")
    listing.add_argument("--names", action="store_true", help="names only, in one request")
    create = verbs.add_parser("create", help="create or change a topic", allow_abbrev=False)
    create.add_argument("topic", help="topic")
    create.add_argument(
        "--queues", type=int, default=8, metavar="N", help="queues on each broker (default: 8)"
    )
    describe = verbs.add_parser(
        "describe", help="show the offset range of each queue", allow_abbrev=False
    )
    describe.add_argument("topic", help="topic")
    delete = verbs.add_parser("delete", help="delete a topic with its messages", allow_abbrev=False)
    delete.add_argument("topic", help="topic")
    for each in (create, delete):
        each.add_argument("--cluster", metavar="NAME", help="only in this cluster")
    works = ((listing, _list), (create, _create), (describe, _describe), (delete, _delete))
    for each, work in works:
        add_name_server(each)
        each.set_defaults(work=work)
    return made
