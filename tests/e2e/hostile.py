"""Attacks of hostile peers on a server, and their cost."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import ExitStack

MIB = 1 << 20
FRAME = 16 * MIB


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def push(peers: list[socket.socket], data: bytes, each: int, least: int = 0) -> int:
    """Write up to `each` bytes on all, until none was accepted for a second; return the count.

    As long as fewer than `least` bytes were accepted in all, a busy server gets 20 seconds.
    """
    left = dict.fromkeys(peers, each)
    moved, pushed = time.monotonic(), 0
    while left and time.monotonic() < moved + (1 if pushed > least else 20):
        for peer in list(left):
            try:
                count = peer.send(data[: left[peer]])
            except BlockingIOError:
                continue
            except ConnectionError:
                # The server has closed it.
                del left[peer]
                continue
            moved = time.monotonic()
            left[peer] -= count
            pushed += count
            if left[peer] == 0:
                del left[peer]
        os.sched_yield()
    return pushed


def connect(address: str, count: int, stack: ExitStack) -> list[socket.socket]:
    """Open non-blocking connections."""
    host, port = address.split(":")
    made = []
    for _ in range(count):
        peer = stack.enter_context(socket.create_connection((host, int(port))))
        peer.setblocking(False)
        made.append(peer)
    return made


def push_halves(peers: list[socket.socket], least: int = 0) -> int:
    """Announce a frame of 16 MiB on each, and send half of it or as much as the server reads."""
    for peer in peers:
        peer.send((FRAME - 4).to_bytes(4, "big") + (200).to_bytes(4, "big"))
    return push(peers, b" " * 65_536, FRAME // 2, least)
