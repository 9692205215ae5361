"""`pyrmq broker drain`: take a broker out of service without losing or delaying messages.

It stops new messages (`brokerPermission=4`), waits until the consumer groups have read what the
broker has, and reports what is left. Exit status 0: nothing is left, the broker may be stopped.
1: the time is up, or something is left; the output names it.
"""

from __future__ import annotations

import threading
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from pyrmq import _core
from pyrmq._names import PERM_READ, PERM_WRITE, V5_0_0
from pyrmq.cli.arguments import add_name_server, parser, seconds
from pyrmq.cli.broker.config import change, masters
from pyrmq.cli.output import print_rows
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.config import BROKER_STATUS
from pyrmq.errors import BrokerError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from pyrmq.remoting import Client, Command

_TIMEOUT = 10.0
_CHECK_SECONDS = 0.2
_READ, _READ_AND_WRITE = str(PERM_READ), str(PERM_READ | PERM_WRITE)
_HELD = {
    "delayed": "messages of delay levels",
    "timer": "timer messages",
    "half": "messages of open transactions",
}


class Staying(NamedTuple):
    """Messages of one group or kind that remain on a broker."""

    kind: str
    name: str
    messages: int
    waited_for: bool


def run(words: list[str]) -> int:
    """Run `pyrmq broker drain` with these arguments."""
    given = _parser().parse_args(words)
    # After the arguments: `--help` needs none of it.
    from pyrmq.admin import Admin
    from pyrmq.remoting import Client

    with Admin(name_server=given.name_server) as admin, Client() as client:
        (address,) = masters(admin, given.broker).values()
        if given.back:
            change(client, address, {"brokerPermission": _READ_AND_WRITE})
            _say(given, f"{given.broker} takes messages again")
            return 0
        change(client, address, {"brokerPermission": _READ})
        _say(given, f"{given.broker} takes no new messages; waiting for its consumer groups")
        return _wait(client, address, given)


def _wait(client: Client, address: str, given: argparse.Namespace) -> int:
    groups = None if given.groups is None else set(given.groups.split(","))
    pause = threading.Event()
    until = monotonic() + given.timeout
    while True:
        left = staying(client, address, groups)
        waiting = [one for one in left if one.waited_for]
        if not waiting or monotonic() > until:
            break
        pause.wait(_CHECK_SECONDS)
    rows = [(one.kind, one.name, one.messages) for one in left]
    if given.json:
        print_rows(["what", "name", "messages"], rows, as_json=True)
    elif rows:
        print_rows(["what stays", "name", "messages"], rows, as_json=False)
    if waiting:
        _say(given, f"after {given.timeout:g} s the groups have not read everything")
    elif not left:
        _say(given, f"nothing is left: {given.broker} may be stopped")
    else:
        _say(given, "these stay on the disk and are read or delivered after the next start")
    return 1 if left else 0


def _say(given: argparse.Namespace, text: str) -> None:
    if not given.json:
        print(text, flush=True)


def staying(client: Client, address: str, groups: set[str] | None) -> list[Staying]:
    """Return what a broker still has: messages that groups have not read, and those kept for later.

    Args:
        client: the connections.
        address: the broker's.
        groups: the groups to wait for. Default: those with connected members.

    Raises:
        RmqError: the broker did not answer, or refused.

    Example:
        >>> staying(client, "127.0.0.1:10911", None)  # doctest: +SKIP
        [Staying(kind='consumer group', name='kitchen', messages=3, waited_for=True)]
    """
    # First, since what the broker delivers meanwhile then counts as a group's lag below.
    found = _held(client, address)
    fields = {"isOrder": "false"}
    answer = client.ask(address, RequestCode.GET_BROKER_CONSUME_STATS, fields, timeout=_TIMEOUT)
    body = _body(answer)
    for table in body.get("consumeStatsList") or []:
        for group, stats in table.items():
            subscribed = _subscribed(client, address, group)
            lags = _lags(stats)
            for topic in (subscribed or set()) - lags.keys():
                # The list above leaves out a group that has committed nothing of this topic yet.
                lags |= _of_topic(client, address, group, topic)
            lag = sum(lags.values())
            if lag:
                kind = "consumer group"
                if subscribed is None:
                    kind += " without members"
                waited_for = subscribed is not None if groups is None else group in groups
                found.append(Staying(kind, group, lag, waited_for))
    return found


def _lags(stats: Iterable[Any]) -> dict[str, int]:
    """The lag by topic."""
    lags: Counter[str] = Counter()
    for of_topic in stats:
        for queue, one in (of_topic.get("offsetTable") or {}).items():
            behind = int(one["brokerOffset"]) - int(one["consumerOffset"])
            lags[str(dict(queue)["topic"])] += max(0, behind)
    return dict(lags)


def _of_topic(client: Client, address: str, group: str, topic: str) -> dict[str, int]:
    fields = {"consumerGroup": group, "topic": topic}
    answer = client.ask(address, RequestCode.GET_CONSUME_STATS, fields, timeout=_TIMEOUT)
    return _lags([_body(answer)])


def _body(answer: Command) -> dict[str, Any]:
    body: Any = _core.parse_json(answer.body or b"{}")
    return dict(body)


def _subscribed(client: Client, address: str, group: str) -> set[str] | None:
    """The topics whose offsets the broker keeps; None for a group without members."""
    fields = {"consumerGroup": group}
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    answer = client.request(address, code, fields, timeout=_TIMEOUT)
    if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(f"{address}: {answer.remark}", code=answer.code)
    body = _body(answer)
    if not body.get("connectionSet"):
        return None
    # Members of a broadcasting group keep their offsets themselves.
    is_shared = body.get("messageModel") != "BROADCASTING"
    return set(body.get("subscriptionTable") or {}) if is_shared else set()


def _held(client: Client, address: str) -> list[Staying]:
    known = client.request(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout=_TIMEOUT)
    if known.version < V5_0_0:
        return []
    answer = client.request(address, BROKER_STATUS, timeout=_TIMEOUT)
    if answer.code != ResponseCode.SUCCESS:
        # Apache's brokers do not say what they hold.
        return []
    held = _body(answer).get("held") or {}
    return [
        Staying(text, "-", int(held[key]), waited_for=False)
        for key, text in _HELD.items()
        if held.get(key)
    ]


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "broker drain",
        "Stop new messages to a broker, and wait until its consumer groups have read what it "
        "has. Exit status 0: nothing is left. 1: something is, or the time is up.",
    )
    add_name_server(made)
    made.add_argument("--broker", metavar="NAME", required=True, help="the broker to drain")
    made.add_argument(
        "--timeout",
        type=seconds,
        default=300.0,
        metavar="SECONDS",
        help="maximum wait for the groups (default: 300)",
    )
    made.add_argument(
        "--groups",
        metavar="GROUP,GROUP",
        help="wait for these groups (default: those with connected members)",
    )
    made.add_argument("--back", action="store_true", help="put the broker back into service")
    return made
