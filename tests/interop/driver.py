"""The real Java client behind one method: ``driver.call("producer.send", topic="T", count=3)``.

One JVM (``tests/interop/java/src/Driver.java``) serves a whole test session. Each command is a line
on its standard input, each answer a JSON line on its standard output.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import queue
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.interop.jvm import JavaProcess, close_quietly
from tests.interop.rocketmq import serialize_flag, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMEOUT_S = 120.0

Row = dict[str, Any]
"""One JSON object of the driver."""


class DriverError(RuntimeError):
    """The Java client raised; ``code`` and ``remark`` are the server's if it answered."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        """Take the driver's answer."""
        super().__init__(str(answer.get("error")))
        self.code: int | None = answer.get("code")
        self.remark: str | None = answer.get("remark")


class Driver(JavaProcess):
    """One JVM with the RocketMQ client of a version.

    Args:
        version: RocketMQ version of the client.
        serialize: header form of its requests, ``JSON`` or ``ROCKETMQ``.
        quick: start fast and small; False for measurements.
        heap_mb: the largest heap, in MiB.
    """

    def __init__(
        self, version: str, serialize: str = "JSON", *, quick: bool = True, heap_mb: int = 400
    ) -> None:
        """Store the settings; ``start`` or ``with`` runs it."""
        flags = [
            serialize_flag(serialize),
            "-Drocketmq.client.rebalance.minInterval=200",
            "-Drocketmq.client.rebalance.waitInterval=1000",
            "-Drocketmq.client.logLevel=WARN",
            "-Djava.security.manager=allow",
        ]
        super().__init__(
            "driver",
            version,
            "Driver",
            jvm=flags,
            ready='{"ready":true}',
            quick=quick,
            heap_mb=heap_mb,
        )
        self.serialize = serialize
        self._answers: queue.Queue[str] = queue.Queue()
        self._one_at_a_time = threading.Lock()
        self._ids = itertools.count(1)

    def _copy_output(self) -> None:
        output = self._running().stdout
        assert output is not None
        with self.log.open("a") as log:
            for line in output:
                if self._ready_text in line:
                    self._ready.set()
                elif line.startswith('{"ok":'):
                    self._answers.put(line)
                else:
                    log.write(line)
                    log.flush()
        self._ready.set()
        self._answers.put('{"ok":false,"error":"the driver process ended"}')

    def call(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """Run one command and return its result; see ``call_within``."""
        return self.call_within(TIMEOUT_S, command, **arguments)

    def call_within(self, seconds: float, command: str, /, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """Run one command and return its result.

        Args:
            seconds: time within which the answer must arrive.
            command: such as ``producer.send``; see ``Driver.java``.
            arguments: sent as text; None is omitted, booleans are ``true`` and ``false``; write
            ``prop__name`` for the argument ``prop.name``.

        Raises:
            DriverError: the Java side raised.
        """
        parts = [command]
        for key, value in arguments.items():
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                parts.append(f"{quote(key.replace('__', '.'), safe='.')}={quote(text, safe='')}")
        with self._one_at_a_time:
            stdin = self._running().stdin
            assert stdin is not None
            stdin.write("\t".join(parts) + "\n")
            stdin.flush()
            answer: Row = json.loads(self._answers.get(timeout=seconds))
        if not answer["ok"]:
            raise DriverError(answer)
        return answer["result"]

    def new_id(self, what: str) -> str:
        """Return a name that no other client of this JVM has."""
        return f"{what}-{next(self._ids)}"

    @contextmanager
    def producer(
        self, namesrv: str, *, group: str = "driver-producer", **options: object
    ) -> Iterator[str]:
        """Run a producer; the value is its id for ``send``."""
        name = self.new_id("producer")
        self.call("producer.start", id=name, group=group, namesrv=namesrv, **options)
        try:
            yield name
        finally:
            with contextlib.suppress(DriverError):
                self.call("producer.stop", id=name)

    def send(self, producer: str, topic: str, **options: object) -> list[Row]:
        """Send with a running producer; return a result for each message or batch."""
        results: list[Row] = self.call("producer.send", id=producer, topic=topic, **options)[
            "results"
        ]
        return results

    @contextmanager
    def push(self, namesrv: str, topic: str, *, group: str, **options: object) -> Iterator[str]:
        """Run a push consumer; the value is its id for ``pushed``."""
        name = self.new_id("push")
        self.call("push.start", id=name, group=group, namesrv=namesrv, topic=topic, **options)
        try:
            yield name
        finally:
            with contextlib.suppress(DriverError):
                self.call("push.stop", id=name)

    def pushed(self, consumer: str, count: int, *, timeout: float = 30.0) -> list[Row]:
        """Wait until a push consumer has ``count`` messages or the time has passed; return all."""
        rows: list[Row] = self.call_within(
            timeout + 30, "push.messages", id=consumer, count=count, timeout=int(timeout * 1000)
        )["messages"]
        return rows

    @contextmanager
    def pull(self, namesrv: str, *, group: str) -> Iterator[str]:
        """Run a DefaultMQPullConsumer; the value is its id."""
        name = self.new_id("pull")
        self.call("pull.start", id=name, group=group, namesrv=namesrv)
        try:
            yield name
        finally:
            with contextlib.suppress(DriverError):
                self.call("pull.stop", id=name)

    @contextmanager
    def lite(self, namesrv: str, topic: str, *, group: str, **options: object) -> Iterator[str]:
        """Run a DefaultLitePullConsumer; the value is its id."""
        name = self.new_id("lite")
        self.call("lite.start", id=name, group=group, namesrv=namesrv, topic=topic, **options)
        try:
            yield name
        finally:
            with contextlib.suppress(DriverError):
                self.call("lite.stop", id=name)

    def find_key(self, namesrv: str, topic: str, key: str, seconds: float = 40.0) -> list[Row]:
        """Query by key until something is found.

        The index is filled after the send is answered, and the client keeps a restarted broker's
        old address for a second.

        Raises:
            DriverError: nothing was found in that time.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = self.call("admin.queryKey", namesrv=namesrv, topic=topic, key=key)
            except DriverError:
                if time.monotonic() > deadline:
                    raise
            else:
                rows: list[Row] = answer["messages"]
                return rows

    def mqadmin(self, text: str | list[str]) -> str:
        """Run one mqadmin command inside this JVM and return what it printed."""
        split = words(text)
        numbered = {str(at): word for at, word in enumerate(split)}
        output: str = self.call("admin.mqadmin", words=len(split), **numbered)["output"]
        with self.log.open("a") as log:
            log.write(f"mqadmin {' '.join(split)}\n{output}\n")
        return output

    def stop(self, timeout: float = 30.0) -> int:
        """Make it close its clients and exit."""
        process = self._process
        if process is not None and process.poll() is None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write("exit\n")
                process.stdin.flush()
            close_quietly(process.stdin)
            with contextlib.suppress(Exception):
                process.wait(timeout)
        return super().stop(timeout)


def bodies(rows: list[Row]) -> list[bytes]:
    """Return the bodies of received messages, in the order of arrival."""
    return [base64.b64decode(row["body"]) for row in rows]
