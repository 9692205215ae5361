"""Members of consumer groups, each a process of its own that can be killed and stopped.

A member appends a line to its file for each call of its listener that has ended. What a call that
was cut off did is not in it, as nothing of it can count.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from pyrmq import PushConsumer, ReceivedMessage, ReconsumeLater

TOPIC = "consumed"
COMMIT_S = 0.5
"""Commit interval of the members: what a crash or a change of hands may repeat."""

FAILS_EACH = 97
"""One message in this number fails at its first call in a process, and is tried again there."""

Order = Literal["none", "queue", "key"]


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

    def __init__(self, name_server: str, order: Order, path: Path) -> None:
        """Start its process."""
        self.order = order
        self.path = path
        path.touch()
        command = [sys.executable, "-m", "tests.chaos.members", name_server, order, str(path)]
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
        self._logs: dict[Order, list[Log]] = {"none": [], "queue": [], "key": []}
        self._handled: dict[Order, list[Handled]] = {order: [] for order in self._logs}
        self._places: dict[Order, set[tuple[str, int, int]]] = {
            order: set() for order in self._logs
        }

    def join(self, order: Order) -> None:
        """Start a member."""
        path = self._directory / f"{order}-{next(self._numbers)}"
        self.running.append(Member(self._name_server, order, path))
        self._logs[order].append(Log(path))

    def handled(self, order: Order) -> list[Handled]:
        """Return what all members of a group have done so far."""
        for log in self._logs[order]:
            more = log.more()
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


def main(name_server: str, order: Order, path: str) -> None:
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
        place = f"{message.broker} {message.queue_id} {message.queue_offset}"
        os.write(file, f"{began} {time.monotonic_ns()} {place} {body}\n".encode())

    consumer = PushConsumer(
        name_server=name_server,
        group=f"by-{order}",
        order=order,
        commit_interval=COMMIT_S,
        rebalance=2.0,
        threads=4,
    )
    consumer.subscribe(TOPIC, handle)
    consumer.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])  # type: ignore[arg-type]
