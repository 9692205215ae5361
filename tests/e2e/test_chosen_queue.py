"""A queue chosen by the caller, while its broker stops and comes back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.ways import FORMS

from pyrmq import Admin, QueueId, RmqError, RouteError
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOON = 10.0
"""Less than the 30 s after which a route is requested anyway; enough for a busy machine."""


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return FORMS[request.param]


@pytest.fixture
def two(topic: str) -> Iterator[Cluster]:
    with cluster(brokers=2) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(topic, queues=2)
        yield running


def test_a_chosen_queue_is_refused_while_its_broker_is_away_and_written_once_it_is_back(
    two: Cluster, topic: str, form: Callable[..., Any]
) -> None:
    queue = QueueId(topic, "broker-a", 1)
    with form(name_server=two.name_server, send_timeout=SOON) as ways:
        for way in ("send", "produce", "send_batch", "send_oneway"):
            ways["send"](topic, b"before", queue=queue)
            two.brokers[0].stop()
            deadline = time.monotonic() + SOON
            while True:
                with pytest.raises(RmqError) as caught:
                    ways["send"](topic, b"while it is away", queue=queue, timeout=0.2)
                if isinstance(caught.value, RouteError):
                    break
                assert time.monotonic() < deadline, caught.value
            assert "its broker may be away" in str(caught.value)
            assert not caught.value.may_exist
            two.brokers[0].start()
            deadline = time.monotonic() + SOON
            while True:
                try:
                    ways[way](topic, b"after", queue=queue)
                    break
                except RmqError:
                    assert time.monotonic() < deadline
                time.sleep(0.05)


def test_messages_of_a_key_wait_for_no_route_that_lacks_every_queue(
    two: Cluster, topic: str, form: Callable[..., Any]
) -> None:
    with (
        Admin(name_server=two.name_server) as admin,
        form(name_server=two.name_server, send_timeout=300.0) as ways,
    ):
        ways["send by key"](topic, b"before")
        admin.create_topic(topic, queues=2, perm=4)
        deadline = time.monotonic() + SOON
        while True:
            with pytest.raises(RmqError) as caught:
                ways["send by key"](topic, b"not permitted", timeout=5)
            if isinstance(caught.value, RouteError):
                break
            assert time.monotonic() < deadline, caught.value
        admin.create_topic(topic, queues=2, perm=6)
        deadline = time.monotonic() + SOON
        while True:
            try:
                ways["send by key"](topic, b"after")
                break
            except RouteError:
                assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_queue_that_nobody_has_is_refused_at_once(
    two: Cluster, topic: str, form: Callable[..., Any]
) -> None:
    with form(name_server=two.name_server, send_timeout=300.0) as ways:
        for queue in (QueueId(topic, "broker-x", 0), QueueId(topic, "broker-a", 99)):
            with pytest.raises(RouteError, match="not among its writable queues"):
                ways["send"](topic, b"x", queue=queue)
