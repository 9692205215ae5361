"""What hostile peers cost the name server: its memory, measured, while others are served."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.wire import Connection, body_of, register
from tests.interop.ours import OurNameServer

from pyrmq.codes import RequestCode

PEERS = 100
FRAME = 16 << 20
MIB = 1 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read out of /proc"
)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def push(peers: list[socket.socket], data: bytes, each: int) -> int:
    """Write on all of them, up to `each` bytes, until nothing was taken for a second."""
    left = dict.fromkeys(peers, each)
    moved = time.monotonic()
    while left and time.monotonic() < moved + 1:
        for peer in list(left):
            try:
                left[peer] -= peer.send(data[: left[peer]])
            except BlockingIOError:
                continue
            moved = time.monotonic()
            if left[peer] == 0:
                del left[peer]
        os.sched_yield()
    return each * len(peers) - sum(left.values())


def test_half_frames_and_unread_answers_of_many_peers_do_not_fill_the_memory() -> None:
    with OurNameServer() as server, ExitStack() as stack:
        good = stack.enter_context(Connection(server.address))
        register(good, "broker-a", [f"topic-{number}" for number in range(3000)])
        ask = {"topic": "topic-7", "acceptStandardJsonOnly": "true"}
        body_of(good.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ask))
        before = resident(server.pid)
        host, port = server.address.split(":")

        def peers() -> list[socket.socket]:
            made = []
            for _ in range(PEERS):
                peer = stack.enter_context(socket.create_connection((host, int(port))))
                peer.setblocking(False)
                made.append(peer)
            return made

        # Each announces a frame of 16 MiB, and sends as much of it as is read.
        half = peers()
        for peer in half:
            peer.send((FRAME - 4).to_bytes(4, "big") + (200).to_bytes(4, "big"))
        assert push(half, b" " * 65_536, FRAME // 2) > 200 * MIB
        assert resident(server.pid) - before < 420 * MIB
        register(good, "broker-b", ["small", "smaller"], port=10001)
        # Each asks for lists of all topics, and reads no answer.
        question = good.frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert push(peers(), question * 200, 200 * len(question)) > 200 * len(question)
        assert resident(server.pid) - before < 720 * MIB
        body_of(good.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ask))
