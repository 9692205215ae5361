"""Senders that wait for the disk and vanish before the answer: nothing of them leaks."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import Producer, PullConsumer, _core
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

TOPIC = "vanish"
CONNECTIONS, BURST, EACH = 200, 20, 5
GOOD, LEAST = 2, 50
SEND = 310


def frame(number: int) -> bytes:
    """Return a send as a Java client writes it."""
    fields: dict[str, str | int | bool | None] = {
        "a": "vanishing",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(number % 4),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return bytes(_core.Command(SEND, fields, b"vanished %d" % number, opaque=number).encode())


def vanish(address: str, number: int) -> None:
    """Send some messages, the last one sometimes incomplete, and close without reading."""
    host, port = address.rsplit(":", 1)
    sends = b"".join(frame(number * EACH + at) for at in range(EACH))
    with socket.create_connection((host, int(port)), timeout=20) as peer:
        peer.sendall(sends[: -7 if number % 5 == 0 else None])
        match number % 3:
            case 0:
                # This makes a close a reset.
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            case 1:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_WR)


def send_on(running: Cluster, name: str, stop: Event, sent: list[bytes]) -> None:
    """Send one message after the other, and record the acknowledged ones."""
    # Far more than a disk takes that others use, too: each send must be acknowledged.
    with Producer(name_server=running.name_server, group=name, send_timeout=60) as producer:
        for number in count():
            body = f"{name} {number}".encode()
            producer.send(TOPIC, body)
            sent.append(body)
            if stop.is_set() and number >= LEAST:
                return


def stored(running: Cluster) -> list[bytes]:
    """Return every message of the topic."""
    found: list[bytes] = []
    with PullConsumer(name_server=running.name_server, group="reader", start="first") as consumer:
        queues = consumer.queues(TOPIC)
        consumer.assign(dict.fromkeys(queues, 0))
        ends = {queue: consumer.bounds(queue)[1] for queue in queues}
        while any(consumer.position(queue) < end for queue, end in ends.items()):
            found += [bytes(message.body) for message in consumer.poll(timeout=5.0)]
    return found


def sockets() -> int:
    """Return the number of sockets of this process, including the broker's."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        # Closed meanwhile, like the descriptor of this listing.
        with suppress(OSError):
            found += str(path.readlink()).startswith("socket:")
    return found


def waiting(running: Cluster) -> tuple[int, int]:
    """Return how many sends wait for the disk, and how many for the store's lock."""
    busy = running.broker.health()["store"]["busy"]
    return busy["waiting_for_disk"], busy["waiting_for_lock"]


@pytest.mark.timeout(120)
def test_senders_that_vanish_before_their_answer_harm_nobody_and_leave_nothing() -> None:
    with cluster(flush_disk_type="SYNC_FLUSH") as running:
        with Producer(name_server=running.name_server, group="first") as producer:
            producer.send(TOPIC, b"first")
        before = sockets()
        stop, sent = Event(), [list[bytes]() for _ in range(GOOD)]
        good = [
            Thread(target=send_on, args=(running, f"good-{number}", stop, sent[number]))
            for number in range(GOOD)
        ]
        for thread in good:
            thread.start()
        for start in range(0, CONNECTIONS, BURST):
            bad = [
                Thread(target=vanish, args=(running.broker.address, number))
                for number in range(start, start + BURST)
            ]
            for thread in bad:
                thread.start()
            for thread in bad:
                thread.join()
        stop.set()
        for thread in good:
            thread.join()

        assert all(len(bodies) > LEAST for bodies in sent), "every send was acknowledged"
        await_true(lambda: sockets() <= before, 30)
        # The end of a connection does not end the wait of its sends, which are stored.
        await_true(lambda: waiting(running) == (0, 0), 30)

        found = stored(running)
        assert {body for bodies in sent for body in bodies} <= set(found)
        whole = {
            b"vanished %d" % (number * EACH + at)
            for number in range(CONNECTIONS)
            for at in range(EACH)
            if number % 5 or at < EACH - 1
        }
        others = [body for body in found if body.startswith(b"vanished")]
        assert len(others) == len(set(others)), "nothing is there twice"
        assert set(others) <= whole, "nothing but what was sent whole"
        assert others, "what was read before its sender went is stored"
