"""A TCP proxy that makes a network bad on demand: delay, silence, lost answers, cut connections.

A process of its own: ``python -m tests.chaos.proxy '[["a", "127.0.0.2", 90, "127.0.0.1", 90]]'``.
It takes one command a line on its standard input and ends with it; :class:`Network` drives it:

    delay NAME MS   each chunk of bytes arrives so much later, in both directions
    silent NAME     nothing arrives any more, connections stay
    lose NAME       what comes back from the server is dropped, requests still arrive
    cut NAME        every connection ends with a reset; new ones work
    refuse NAME     the same, and new connections end at once
    fine NAME       everything is as it should be; what was held back arrives, except what was lost
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 256 * 1024
WAITING_CHUNKS = 64
READY = "ready"


class Route:
    """One port that stands for a server, and how bad the way to it is."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.delay = 0.0
        self.losing = False
        self.refusing = False
        self.open = asyncio.Event()
        self.open.set()
        self.writers: set[asyncio.StreamWriter] = set()

    def order(self, verb: str, number: float) -> None:
        """Carry out one command."""
        match verb:
            case "delay":
                self.delay = number / 1000
            case "silent":
                self.open.clear()
            case "lose":
                self.losing = True
            case "cut" | "refuse":
                self.refusing = verb == "refuse"
                for writer in self.writers:
                    reset(writer)
            case "fine":
                if self.losing:
                    # Bytes are missing in the middle of these: nothing sensible can follow.
                    self.order("cut", 0)
                self.delay, self.losing, self.refusing = 0.0, False, False
                self.open.set()
            case _:
                raise ValueError(verb)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one connection with one to the server."""
        if self.refusing:
            reset(writer)
            return
        try:
            there = await asyncio.open_connection(*self.target)
        except OSError:
            reset(writer)
            return
        pair = {writer, there[1]}
        self.writers |= pair
        try:
            await asyncio.gather(
                self.carry(reader, there[1], back=False),
                self.carry(there[0], writer, back=True),
                return_exceptions=True,
            )
        finally:
            self.writers -= pair
            for one in pair:
                one.close()

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool
    ) -> None:
        """Carry one direction to its end; the end of one is the end of both."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING_CHUNKS)
        hand_on = asyncio.create_task(self.deliver(chunks, writer, back=back))
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(CHUNK):
                await chunks.put((loop.time() + self.delay, data))
        except OSError:
            reset(writer)
        finally:
            await chunks.put((loop.time(), b""))
            await hand_on

    async def deliver(
        self,
        chunks: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        *,
        back: bool,
    ) -> None:
        """Write each chunk when it is due."""
        loop = asyncio.get_running_loop()
        while True:
            due, data = await chunks.get()
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            await self.open.wait()
            if not data:
                writer.close()
                return
            if back and self.losing:
                continue
            try:
                writer.write(data)
                await writer.drain()
            except OSError:
                # The other direction sees the same end; this one goes on emptying its queue.
                continue


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by a reset, as a host that went away does."""
    known = writer.get_extra_info("socket")
    if known is not None:
        linger = struct.pack("ii", 1, 0)
        # It may be closed already, while its task has not heard of it.
        with suppress(OSError):
            known.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def run(routes: list[tuple[str, str, int, str, int]]) -> None:
    """Serve until the standard input ends."""
    loop = asyncio.get_running_loop()
    known: dict[str, Route] = {}
    for name, host, port, to_host, to_port in routes:
        known[name] = route = Route((to_host, to_port))
        await asyncio.start_server(route.serve, host, port)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print(READY, flush=True)  # noqa: T201 - the line that the parent waits for
    while line := await orders.readline():
        verb, name, *number = line.decode().split()
        known[name].order(verb, float(number[0]) if number else 0.0)
        print(READY, flush=True)  # noqa: T201 - the command is carried out


class Network:
    """The proxy process.

    Args:
        routes: (name, host and port to listen on, host and port of the server).
    """

    def __init__(self, routes: Sequence[tuple[str, str, int, str, int]]) -> None:
        """Keep the routes; ``with`` starts the process."""
        self._routes = list(routes)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start it, and wait until it listens."""
        root = str(Path(__file__).parent.parent.parent)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.proxy", json.dumps(self._routes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": root},
        )
        self._await_ready()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait(30)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def order(self, verb: str, name: str, number: int = 0) -> None:
        """Give one command, and wait until it is carried out."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb} {name} {number}\n")
        self._process.stdin.flush()
        self._await_ready()

    def _await_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip() == READY, f"the proxy ended: {line!r}"


if __name__ == "__main__":
    asyncio.run(run(json.loads(sys.argv[1])))
