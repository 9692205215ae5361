"""The script of the chaos test: a seed decides the faults of each server and their order."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from pyrmq.testing import ClusterBroker, ClusterNameServer

    Servers = Mapping[str, ClusterBroker | ClusterNameServer]

STEP_S = 0.8
"""Maximum duration of a fault of one server; the loads continue meanwhile."""
OUTAGE_S = 1.5
"""Duration of a fault of several servers at once: longer than a call's timeout."""
OUTAGES = (("silent", "namesrv-a+namesrv-b"), ("silent", "broker-a+broker-b"))
"""Faults of several servers at once. The first comes before any route is known."""

Step = tuple[str, str]
"""A fault and its server."""

TROUBLES = ("kill", "stop", "delay", "silent", "lose", "cut", "refuse", "busy")


def steps(chance: random.Random, names: list[str], count: int) -> list[Step]:
    """Return the outages and every fault for every server at least once, then more of them."""
    every = [(trouble, name) for trouble in TROUBLES for name in names]
    chance.shuffle(every)
    more = [(chance.choice(TROUBLES), chance.choice(names)) for _ in range(len(every), count)]
    return [OUTAGES[0], *every[::2], OUTAGES[1], *every[1::2], *more]


def play(
    chance: random.Random,
    script: list[Step],
    servers: Servers,
    allow: Callable[[int, int], None],
) -> None:
    """Play the steps one after the other; ``allow(step, steps)`` lets the loads continue."""
    for number, (trouble, name) in enumerate(script):
        allow(number + 1, len(script))
        lasts = chance.uniform(0.1, 1.0) * STEP_S
        match trouble:
            case "kill":
                servers[name].kill()
                servers[name].start()
            case "stop":
                pid = servers[name].pid
                assert pid is not None
                os.kill(pid, signal.SIGSTOP)
                time.sleep(lasts)
                os.kill(pid, signal.SIGCONT)
            case _:
                several = [servers[one] for one in name.split("+")]
                for server in several:
                    disturb(server, trouble, chance.randrange(20, 400) / 1000, lasts)
                time.sleep(lasts if len(several) == 1 else OUTAGE_S)
                for server in several:
                    server.network.heal()


def disturb(
    server: ClusterBroker | ClusterNameServer, trouble: str, delay: float, lasts: float
) -> None:
    """Begin a fault of the network."""
    network = server.network
    match trouble:
        case "delay":
            network.delay(delay)
        case "silent":
            network.silence()
        case "lose":
            network.lose()
        case "cut":
            network.cut()
        case "refuse":
            network.refuse()
        case "busy":
            network.busy(lasts)
        case _:
            raise ValueError(trouble)
