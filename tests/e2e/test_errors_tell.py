"""Errors of messages that were never sent also name their topic and message."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.ways import FORMS

from pyrmq import (
    Admin,
    NameServerUnreachable,
    Producer,
    PullConsumer,
    RmqError,
    RouteError,
    aio,
)
from pyrmq.errors import QueueFull
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = "127.0.0.1:9"


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return FORMS[request.param]


@pytest.mark.parametrize("way", ["send", "send by key", "produce", "send_oneway"])
def test_a_message_without_a_route_has_a_topic_and_an_id(
    topic: str, form: Callable[..., Any], way: str
) -> None:
    with (
        form(name_server=NOBODY, send_timeout=5) as ways,
        pytest.raises(NameServerUnreachable) as caught,
    ):
        ways[way](topic, b"x")
    error = caught.value
    assert (error.topic, error.may_exist, error.attempts) == (topic, False, ())
    assert len(str(error.message_id)) == 32
    assert str(error.message_id) in str(error)


def test_a_message_that_finds_no_room_has_a_topic(address: str, topic: str) -> None:
    full: list[RmqError] = []
    with Producer(name_server=address, max_in_flight=1, send_timeout=20, linger=5) as producer:
        producer.produce(topic, b"x", lambda *_: None)
        with pytest.raises(QueueFull) as caught:
            producer.produce(topic, b"y", wait=False)
        full.append(caught.value)
        producer.flush()

    async def run() -> None:
        async with aio.Producer(
            name_server=address, max_in_flight=1, send_timeout=20, linger=5
        ) as producer:
            first = await producer.produce(topic, b"x")
            with pytest.raises(QueueFull) as caught:
                await producer.send(topic, b"y", timeout=0.1)
            full.append(caught.value)
            await producer.flush()
            await first

    asyncio.run(run())
    assert [(error.topic, error.may_exist) for error in full] == [(topic, False)] * 2


def test_a_topic_whose_only_broker_is_down_is_not_called_unknown(topic: str) -> None:
    with cluster() as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(topic)
        running.stop_broker()
        with (
            pytest.raises(RouteError, match="none is registered at the name server"),
            PullConsumer(name_server=running.name_server, group="alone") as consumer,
        ):
            consumer.subscribe(topic)


UNCLOSED = """
import sys
from pyrmq import PullConsumer
consumer = PullConsumer(name_server={names!r}, group="unclosed", auto_commit=3600, start="first")
consumer.subscribe({topic!r})
while not consumer.poll(timeout=1):
    pass
consumer.poll(timeout=0)
print("read", flush=True)
sys.stdin.readline()
"""

ASKED = """
from pyrmq import Admin
with Admin(name_server={names!r}) as admin:
    print(len(admin.topics()) > 0)
"""


def test_a_consumer_that_nobody_closes_logs_what_it_cannot_commit(topic: str) -> None:
    with cluster() as running:
        with Producer(name_server=running.name_server) as producer:
            producer.send(topic, b"x")
        program = UNCLOSED.format(names=running.name_server, topic=topic)
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "read\n"
            running.stop_broker()
            _, logged = child.communicate("\n", timeout=30)
    assert child.returncode == 0, logged
    assert "Traceback" not in logged
    assert "a consumer was dropped without close" in logged


def test_an_administrator_alone_logs_a_name_server_that_is_away(address: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", ASKED.format(names=f"{NOBODY};{address}")],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert told.stdout == "True\n"
    assert f"name server {NOBODY} did not answer" in told.stderr
