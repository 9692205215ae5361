"""Members of consumer groups, each a process of its own that can be killed and stopped.

A member appends a line to its file for each call of its listener that has ended. What a call that
was cut off did is not in it, as nothing of it can count.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

from pyrmq import (
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    ReconsumeLater,
    RmqError,
    SimpleConsumer,
    aio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOPIC = "consumed"
COMMIT_S = 0.5
"""Commit interval of the members: what a crash or a change of hands may repeat."""

FAILS_EACH = 97
"""One message in this number fails at its first call in a process, and is tried again there."""

Order = Literal["none", "queue", "key", "pull", "aio", "simple"]
"""The `order` of a group of `PushConsumer`, or which other consumer its members are."""

Message = TypeVar("Message", bound=ReceivedMessage)

INVISIBLE_S = 5.0
"""Of `SimpleConsumer`: when what a killed member had comes again."""


class Handled(NamedTuple):
    """A call that has ended.

    Attributes:
        began: when, on the clock of all processes, in ns.
        ended: likewise.
        broker: of the message, as the following two.
        queue_id: its queue.
        offset: its offset there.
        body: its body.
    """

    began: int
    ended: int
    broker: str
    queue_id: int
    offset: int
    body: str

    @property
    def place(self) -> tuple[str, int, int]:
        """Where the message is."""
        return self.broker, self.queue_id, self.offset


class Log:
    """Reads a member's file as it grows."""

    def __init__(self, path: Path) -> None:
        """Begin at its first line."""
        self.path = path
        self._position = 0

    def more(self) -> list[Handled]:
        """Return what has been added since; a line that is being written comes later."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._position += len(text)
        return [handled_of(line) for line in text.decode().splitlines()]


def handled_of(line: str) -> Handled:
    """Read a line."""
    began, ended, broker, queue_id, offset, body = line.split()
    return Handled(int(began), int(ended), broker, int(queue_id), int(offset), body)


def ready(path: Path) -> Path:
    """Return the file that says that a member takes signals."""
    return path.with_suffix(".ready")


class Member:
    """A running member of a group."""

    def __init__(self, name_server: str, order: Order, path: Path, call_s: float = 0.0) -> None:
        """Start its process, whose calls take this time."""
        self.order = order
        self.path = path
        path.touch()
        arguments = [name_server, order, str(path), str(call_s)]
        command = [sys.executable, "-m", "tests.chaos.members", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill it with SIGKILL, also when it is stopped."""
        self._process.kill()
        self._process.wait(10)

    def leave(self) -> int:
        """Have it end cleanly; return its exit status.

        Before it is ready, SIGTERM would end the interpreter.
        """
        deadline = time.monotonic() + 60
        while not ready(self.path).exists() and self._process.poll() is None:
            assert time.monotonic() < deadline, "a member does not start"
            time.sleep(0.02)
        self._process.terminate()
        return self._process.wait(60)

    def pause(self, seconds: float) -> None:
        """Stop it with SIGSTOP for a while."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)


class Members:
    """The members of one group for each order."""

    def __init__(self, name_server: str, directory: Path) -> None:
        """Start none yet."""
        self._name_server = name_server
        self._directory = directory
        self._numbers = count()
        self.running: list[Member] = []
        self._logs: dict[Order, list[Log]] = {order: [] for order in get_args(Order)}
        self._handled: dict[Order, list[Handled]] = {order: [] for order in self._logs}
        self._places: dict[Order, set[tuple[str, int, int]]] = {
            order: set() for order in self._logs
        }

    def join(self, order: Order, call_s: float = 0.0) -> None:
        """Start a member."""
        path = self._directory / f"{order}-{next(self._numbers)}"
        self.running.append(Member(self._name_server, order, path, call_s))
        self._logs[order].append(Log(path))

    def handled(self, order: Order) -> list[Handled]:
        """Return what all members of a group have done so far."""
        for log in self._logs[order]:
            more = log.more()
            if order == "simple":
                # What is delivered again comes from a retry topic, so its body tells which it is.
                more = [one._replace(broker=one.body, queue_id=0, offset=0) for one in more]
            self._handled[order] += more
            self._places[order].update(one.place for one in more)
        return self._handled[order]

    def places(self, order: Order) -> set[tuple[str, int, int]]:
        """Return where the messages are that a group has handled so far."""
        self.handled(order)
        return self._places[order]

    def end(self) -> None:
        """Kill what still runs."""
        for member in self.running:
            member.kill()


def main(name_server: str, order: Order, path: str, call_s: str) -> None:
    """Consume until SIGTERM."""
    # Until the consumer runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ready(Path(path)).touch()
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    failed: set[str] = set()

    def handle(message: ReceivedMessage) -> None:
        began = time.monotonic_ns()
        body = message.body.decode()
        if int(body.rpartition(":")[2]) % FAILS_EACH == 0 and body not in failed:
            failed.add(body)
            raise ReconsumeLater(pause=0.02)
        if float(call_s):
            time.sleep(float(call_s))
        place = f"{message.broker} {message.queue_id} {message.queue_offset}"
        os.write(file, f"{began} {time.monotonic_ns()} {place} {body}\n".encode())

    if order == "aio":
        asyncio.run(await_listener(name_server, order, handle))
    elif order == "pull":
        poll(name_server, order, handle)
    elif order == "simple":
        receive(name_server, order, handle)
    else:
        consumer = PushConsumer(**settings(name_server, order), order=order, threads=4)
        consumer.subscribe(TOPIC, handle)
        consumer.run()


def settings(name_server: str, order: Order) -> dict[str, Any]:
    """The options of all members that own queues."""
    return {
        "name_server": name_server,
        "group": f"by-{order}",
        "commit_interval": COMMIT_S,
        "rebalance": 2.0,
    }


async def await_listener(
    name_server: str, order: Order, handle: Callable[[ReceivedMessage], None]
) -> None:
    """Consume with a coroutine until SIGTERM."""
    consumer = aio.PushConsumer(**settings(name_server, order), tasks=4)

    async def listener(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        handle(message)

    consumer.subscribe(TOPIC, listener)
    await consumer.run()


def poll(name_server: str, order: Order, handle: Callable[[ReceivedMessage], None]) -> None:
    """Poll until SIGTERM; what the listener refuses is handled again here."""
    options = settings(name_server, order)
    options["auto_commit"] = options.pop("commit_interval")
    with PullConsumer(**options) as consumer:
        consumer.subscribe(TOPIC)
        for messages in until_told(lambda: consumer.poll(timeout=0.5)):
            for message in messages:
                try:
                    handle(message)
                except ReconsumeLater:
                    handle(message)
        # What was returned last counts as done with the next poll. A broker that is down does not
        # get it: a fault explains what comes again.
        with suppress(RmqError):
            consumer.commit()


def receive(name_server: str, order: Order, handle: Callable[[ReceivedMessage], None]) -> None:
    """Receive and acknowledge until SIGTERM; what the listener refuses is given back."""
    with SimpleConsumer(name_server=name_server, group=f"by-{order}") as consumer:
        consumer.subscribe(TOPIC)
        for messages in until_told(lambda: consumer.receive(32, invisible=INVISIBLE_S, wait=0.5)):
            done = []
            for message in messages:
                try:
                    handle(message)
                except ReconsumeLater:
                    with suppress(RmqError):
                        consumer.change_invisible(message, 0)
                else:
                    done.append(message)
            # What a broker that is down does not hear comes again.
            with suppress(RmqError):
                consumer.ack(done)


def until_told(take: Callable[[], Sequence[Message]]) -> Iterator[Sequence[Message]]:
    """Yield what a consumer gets, until SIGTERM."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    while not told.is_set():
        try:
            found = take()
        except RmqError:
            time.sleep(0.05)
            continue
        yield found


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
