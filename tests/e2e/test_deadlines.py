"""No call outlives its time, whoever is silent: name servers, their names, brokers."""

from __future__ import annotations

import gc
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.ways import FORMS

from pyrmq import Message, RmqError
from pyrmq.errors import RequestTimeout
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIME = 0.4
LATE = 0.1
"""What a call may take beyond its time."""
TRIES = 10
"""A machine that is busy wakes a thread late, too: one of these must be in time."""


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return FORMS[request.param]


@contextmanager
def silence() -> Iterator[str]:
    """An address that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def first(queues: Any) -> Any:  # noqa: ANN401 - a selector
    return queues[0]


CALLS: dict[str, Callable[[dict[str, Any], str], object]] = {
    "send to a chosen queue": lambda ways, topic: ways["send"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "send_async to a chosen queue": lambda ways, topic: ways["send_async"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "produce to a chosen queue": lambda ways, topic: ways["produce"](topic, b"x", queue=first),
    "keyed batch": lambda ways, topic: ways["send_batch"](
        topic, Message(topic, b"x", sharding_key="k"), timeout=TIME
    ),
    "batch to a chosen queue": lambda ways, topic: ways["send_batch"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "oneway": lambda ways, topic: ways["send_oneway"](topic, b"x"),
    "oneway to a chosen queue": lambda ways, topic: ways["send_oneway"](topic, b"x", queue=first),
    "request": lambda ways, topic: ways["request"](topic, b"x", timeout=TIME),
    "request to a chosen queue": lambda ways, topic: ways["request"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "transaction": lambda ways, topic: ways["send_in_transaction"](topic, b"x", timeout=TIME),
    "transaction to a chosen queue": lambda ways, topic: ways["send_in_transaction"](
        topic, b"x", queue=first, timeout=TIME
    ),
}


def overtime(call: Callable[[], object]) -> float:
    """How much longer than its time a call takes that fails."""
    began = time.monotonic()
    with pytest.raises(RmqError):
        call()
    return time.monotonic() - began - TIME


@pytest.mark.parametrize("name", CALLS)
def test_no_call_outlives_its_time_while_name_servers_are_silent(
    name: str, form: Callable[..., Any]
) -> None:
    with silence() as one, silence() as other:
        options: dict[str, Any] = {"name_server": [one, other], "send_timeout": TIME}
        with form(**options) as ways:
            late = []
            for number in range(TRIES):
                gc.collect()
                late.append(overtime(lambda topic=f"t{number}": CALLS[name](ways, topic)))  # type: ignore[misc]
                if late[-1] <= LATE:
                    break
            assert min(late) <= LATE, late


def test_a_request_without_a_reply_ends_in_time_and_says_which_it_was(
    topic: str, form: Callable[..., Any]
) -> None:
    with cluster() as running, form(name_server=running.name_server) as ways:
        ways["send"](topic, b"first")
        late = []
        for _ in range(TRIES):
            began = time.monotonic()
            with pytest.raises(RequestTimeout) as caught:
                ways["request"](topic, b"x", timeout=TIME)
            late.append(time.monotonic() - began - TIME)
            if late[-1] <= LATE:
                break
        assert min(late) <= LATE, late
    error = caught.value
    assert (error.topic, error.broker, error.may_exist) == (topic, "broker-a", True)
    assert error.queue_id is not None
    assert str(error.message_id) in str(error)
