"""The table of Python rows: which codes may be registered, and the answers to handlers' results."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyrmq.errors import ConfigError
from pyrmq.server.processors import Processors, Refused, Response, Workers

if TYPE_CHECKING:
    from pyrmq import _core


class Asked:
    """A request as the core provides it, which records its answer."""

    def __init__(self, code: int, **fields: str) -> None:
        self.code, self.fields, self.remote = code, fields, "127.0.0.1:1"
        self.answers: list[tuple[Any, ...]] = []
        self.answered = threading.Event()

    def get(self, key: str) -> str | None:
        """One header field."""
        return self.fields.get(key)

    def reply(self, *answer: object) -> bool:
        """Record the answer."""
        self.answers.append(answer)
        self.answered.set()
        return True


class Queue:
    """A queue as the core provides it."""

    def __init__(self) -> None:
        self.waiting: deque[Asked] = deque()
        self.ready = threading.Condition()
        self.closed = False

    def put(self, *requests: Asked) -> None:
        """Add waiting requests."""
        with self.ready:
            self.waiting.extend(requests)
            self.ready.notify_all()

    def take(self, most: int, timeout_ms: int) -> list[Asked]:
        """Wait for requests."""
        with self.ready:
            self.ready.wait_for(lambda: self.waiting or self.closed, timeout_ms / 1000)
            return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    def close(self) -> None:
        """Wake every worker."""
        with self.ready:
            self.closed = True
            self.ready.notify_all()


def rows() -> Processors:
    return Processors("broker", native=[10])


def answer_of(processors: Processors, request: Asked) -> tuple[Any, ...]:
    processors.answer(cast("Any", request))
    (answer,) = request.answers
    return answer


def test_a_handler_answers_its_code() -> None:
    processors = rows()

    @processors.register(9001)
    def echo(request: _core.Request) -> Response:
        return Response(fields={"got": str(request.get("sent"))}, body=b"pong")

    assert processors.codes == [9001]
    assert answer_of(processors, Asked(9001, sent="x")) == (0, None, {"got": "x"}, b"pong")


def test_a_handler_without_a_result_answers_success() -> None:
    processors = rows()
    processors.register(9001, lambda _: None)
    assert answer_of(processors, Asked(9001))[0] == 0


def test_a_native_row_cannot_be_replaced() -> None:
    with pytest.raises(ConfigError, match=r"10 \(SEND_MESSAGE\) is served natively by the broker"):
        rows().register(10, lambda _: None)


def test_a_code_has_one_handler() -> None:
    processors = rows()
    processors.register(9001, lambda _: None)
    with pytest.raises(ConfigError, match="request code 9001 already has a handler"):
        processors.register(9001, lambda _: None)


def test_a_code_must_fit_the_wire() -> None:
    with pytest.raises(ConfigError, match="must fit 32 bits"):
        rows().register(2**31, lambda _: None)


def test_nothing_is_registered_while_the_server_runs() -> None:
    processors = rows()
    processors.seal()
    with pytest.raises(ConfigError, match="register the handler before start"):
        processors.register(9001, lambda _: None)
    processors.unseal()
    processors.register(9001, lambda _: None)


def test_the_servers_own_rows_leave_native_ones_alone() -> None:
    processors = rows()
    processors.add({10: lambda _: None, 26: lambda _: None})
    assert processors.codes == [26]


def test_a_handler_that_raises_answers_type_and_message(caplog: pytest.LogCaptureFixture) -> None:
    processors = rows()

    def broken(request: object) -> None:
        raise LookupError("no shelf")

    processors.register(9001, broken)
    with caplog.at_level(logging.ERROR, "pyrmq.server"):
        assert answer_of(processors, Asked(9001)) == (1, "LookupError: no shelf")
    assert "request code 9001" in caplog.text
    assert "Traceback" in caplog.text


def test_a_handler_refuses_with_a_code_of_its_own() -> None:
    processors = rows()

    def refuse(request: object) -> None:
        raise Refused(22, "no such key")

    processors.register(9001, refuse)
    assert answer_of(processors, Asked(9001)) == (22, "no such key")


def test_workers_answer_everything_and_end_when_the_queue_closes() -> None:
    processors, queue = rows(), Queue()
    processors.register(9001, lambda _: None)
    workers = Workers(cast("Any", queue), processors, name="test", count=2)
    workers.start()
    requests = [Asked(9001) for _ in range(100)]
    queue.put(*requests)
    assert all(request.answered.wait(20) for request in requests)
    assert {"test-worker-0", "test-worker-1"} <= {thread.name for thread in threading.enumerate()}
    workers.stop(5)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-")]
    assert [len(request.answers) for request in requests] == [1] * 100


def test_a_worker_outlives_a_handler_that_raises() -> None:
    processors, queue = rows(), Queue()
    processors.register(9001, lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    workers = Workers(cast("Any", queue), processors, name="test", count=1)
    workers.start()
    first, second = Asked(9001), Asked(9001)
    queue.put(first)
    assert first.answered.wait(20)
    queue.put(second)
    assert second.answered.wait(20)
    workers.stop(5)
    assert second.answers == [(1, "ZeroDivisionError: division by zero")]


def test_handlers_ask_only_for_fields_that_a_header_has() -> None:
    """A misspelt name would read as a field that is missing, which is no error."""
    root = Path(__file__).resolve().parents[2]
    headers = "".join(
        path.read_text(encoding="utf-8")
        for path in (root / "crates/remoting/src/header").rglob("*.rs")
    )
    known = set(re.findall(r'=> "(\w+)"', headers))
    asked = {
        name
        for server in ("nameserver", "broker")
        for path in (root / "python/pyrmq" / server / "processor").glob("*.py")
        for name in re.findall(r'request\.get\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert len(asked) >= 8
    assert not asked - known
