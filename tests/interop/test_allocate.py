"""Compares allocation strategies with the Java client's classes on the same groups."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyrmq import ConfigError, QueueId
from pyrmq.routing import allocate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.driver import Driver

VERSION = "5.5.0"
GROUPS = 1500
ROOMS = ("", "north", "south", "\u6771", "\uff21", "\U0001f600", "a")
INNER = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH:10", "MACHINE_ROOM:north:south", "CONFIG")

Case = tuple[str, list[QueueId], list[str], str]


def made_up(chance: random.Random) -> Case:
    """Return a strategy, queues, clients and one client; rarely impossible lists."""
    rooms = ROOMS if chance.random() < 0.2 else ROOMS[1:]

    def named(what: str) -> str:
        form = chance.choice(
            ["{0}@{1}", "{0}@{1}", "{0}@{1}", "{1}", "{0}@", "{0}@{1}@", "{0}@@{1}"]
        )
        return form.format(chance.choice(rooms), what)

    brokers = [named(f"broker-{number}") for number in range(chance.randrange(1, 5))]
    topic = chance.choice(["orders", "%RETRY%group", "\u6ce8\u6587"])
    queues = [QueueId(topic, chance.choice(brokers), at) for at in range(chance.randrange(40))]
    clients = [named(f"10.0.0.{number}@7") for number in range(chance.randrange(12))]
    if chance.random() < 0.8:
        queues, clients = sorted(queues), sorted(clients)
    if clients and chance.random() < 0.1:
        clients.append(chance.choice(clients))
    me = chance.choice([*clients, *clients, "stranger@1", ""])
    strategy = chance.choice([*INNER, f"CONSISTENT_HASH:{chance.randrange(1, 50)}"])
    return (f"NEARBY:{strategy}" if chance.random() < 0.4 else strategy), queues, clients, me


def line(case: Case) -> str:
    """Return a case as the Java side reads it."""
    strategy, queues, clients, me = case
    texts = [f"{quote(one.topic)}:{quote(one.broker)}:{one.queue_id}" for one in queues]
    return ";".join([strategy, ",".join(texts), ",".join(map(quote, clients)), quote(me)])


def strategy_of(text: str, queues: list[QueueId]) -> allocate.Strategy:
    """Return our strategy for the text."""
    name, _, rest = text.partition(":")
    match name:
        case "AVG":
            return allocate.Averagely()
        case "AVG_BY_CIRCLE":
            return allocate.AveragelyByCircle()
        case "CONSISTENT_HASH":
            return allocate.ConsistentHash(int(rest))
        case "MACHINE_ROOM":
            return allocate.ByMachineRoom(rest.split(":"))
        case "CONFIG":
            return allocate.ByConfig(queues[::2])
        case _:
            return allocate.MachineRoomNearby(
                strategy_of(rest, queues),
                room_of_queue=lambda queue: queue.broker.split("@")[0],
                room_of_client=lambda client: client.split("@")[0],
            )


def ours(case: Case) -> str:
    """Return the result of `pyrmq.routing.allocate` in the form of the Java side."""
    text, queues, clients, me = case
    strategy = strategy_of(text, queues)
    try:
        mine = strategy.allocate(me, queues, clients)
    except ConfigError:
        return "-"
    return ",".join([strategy.name, *(str(queues.index(queue)) for queue in mine)])


def test_the_java_client_shares_queues_alike(drivers: Callable[[str, str], Driver]) -> None:
    chance = random.Random(18)
    cases = [made_up(chance) for _ in range(GROUPS)]
    theirs: list[str] = drivers(VERSION, "JSON").call(
        "allocate.shares", cases="\n".join(map(line, cases))
    )
    for case, share in zip(cases, theirs, strict=True):
        assert ours(case) == share, case
    assert sum("," in share for share in theirs) > GROUPS // 4
