"""Mistakes of callers and servers: each gives a clear error, with every way of sending."""

from __future__ import annotations

import random
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.relay import listening
from tests.e2e.ways import FORMS, WAYS

from pyrmq import (
    Admin,
    ClosedError,
    ConfigError,
    MessageError,
    NameServer,
    NameServerUnreachable,
    Producer,
    QueueId,
    RmqError,
    RouteError,
    SendTimeout,
    TopicNotFound,
)
from pyrmq.errors import ConnectionLost, MessageRefused, NotSupported, PermissionDenied
from pyrmq.testing import cluster

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from pyrmq.testing import Cluster


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return FORMS[request.param]


def test_a_message_that_no_broker_takes_never_leaves(
    address: str, topic: str, form: Callable[..., Any]
) -> None:
    wrong: list[tuple[str, Any, dict[str, Any], str]] = [
        ("two words", b"x", {}, "only the characters"),
        ("with\x01separator", b"x", {}, "only the characters"),
        ("", b"x", {}, "it is empty"),
        ("t" * 128, b"x", {}, "longer than 127"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", b"x", {}, "only brokers write to it"),
        (topic, b"", {}, "empty body"),
        (topic, "", {}, "empty body"),
        (topic, b"x" * 101, {}, "has 101 bytes, the limit is 100"),
        (topic, b"x", {"properties": {"a\x02": "b"}}, "separate properties"),
        (topic, b"x", {"properties": {"a": "b\x01c"}}, "separate properties"),
        (topic, b"x", {"properties": {"": "b"}}, "a name is not empty"),
        (topic, b"x", {"properties": {"UNIQ_KEY": "b"}}, "has a meaning of its own"),
        (topic, b"x", {"keys": "a\x01b"}, "separate properties"),
        (topic, b"x", {"keys": ["a", "b\x02"]}, "separate properties"),
        (topic, b"x", {"tags": "a\x02"}, "separate properties"),
    ]
    with form(name_server=address, max_message_bytes=100) as ways:
        for way in WAYS:
            for topic_name, body, more, match in wrong:
                with pytest.raises(MessageError, match=match):
                    ways[way](topic_name, body, **more)
            for body in (42, None, ["x"]):
                with pytest.raises(TypeError):
                    ways[way](topic, body)


def test_a_queue_that_is_none_is_refused_and_a_selector_may_raise(
    address: str, topic: str, form: Callable[..., Any]
) -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (QueueId("other", "broker-a", 0), ConfigError, "is not of topic"),
        (lambda _: None, ConfigError, "it must return a queue"),
        (lambda _: True, ConfigError, "it must return a queue"),
        (lambda _: 99, ConfigError, "there are 8 queues"),
        (lambda _: QueueId(topic, "broker-x", 0), ConfigError, "not among the topic's queues"),
        (lambda _: 1 // 0, ZeroDivisionError, "division"),
        (99, RouteError, "not among its writable queues"),
        (QueueId(topic, "broker-x", 0), RouteError, "not among its writable queues"),
    ]
    with form(name_server=address) as ways:
        ways["send"](topic, b"x")
        for way in WAYS:
            for queue, error, match in wrong:
                if way == "send_batch" and error is RouteError:
                    match = "not among its writable queues"
                    with pytest.raises(RmqError, match=match):
                        ways[way](topic, b"x", queue=queue)
                    continue
                with pytest.raises(error, match=match):
                    ways[way](topic, b"x", queue=queue)


def test_every_way_reports_which_of_the_five_causes_of_no_route_it_met(
    address: str, topic: str, form: Callable[..., Any]
) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, perm=4)
    with NameServer(listen_port=0) as lonely:
        causes: list[tuple[str, str, type[RmqError], str]] = [
            (address, "not-there", TopicNotFound, "does not exist and no broker creates topics"),
            (lonely.address, "any", RouteError, "none is registered at the name server"),
            ("127.0.0.1:9", "any", NameServerUnreachable, "no name server answered"),
            ("no.invalid:9876", "any", NameServerUnreachable, "host name could be resolved"),
            (address, topic, RouteError, "writing is not permitted"),
        ]
        for server, name, error, match in causes:
            with form(name_server=server, create_topic_key="no-such") as ways:
                for way in WAYS:
                    with pytest.raises(RmqError) as caught:
                        ways[way](name, b"x")
                    told = getattr(caught.value, "results", [caught.value])[0]
                    assert isinstance(told, error), (way, told)
                    assert match in str(told), (way, told)


def test_a_closed_producer_says_so_to_every_way(
    address: str, topic: str, form: Callable[..., Any]
) -> None:
    with form(name_server=address) as ways:
        ways["send"](topic, b"x")
        ways["close"]()
        for way in WAYS:
            with pytest.raises(ClosedError, match="closed"):
                ways[way](topic, b"x")
        ways["close"]()


@pytest.fixture(scope="module")
def read_only() -> Iterator[Cluster]:
    with cluster(broker_permission=4) as running:
        yield running


def test_a_read_only_broker_is_no_place_to_send_to(
    read_only: Cluster, form: Callable[..., Any]
) -> None:
    with form(name_server=read_only.name_server, retries=0) as ways:
        for way in WAYS:
            if way == "send_oneway":
                continue
            with pytest.raises(RmqError, match=r"(?i)permi|forbidden") as caught:
                ways[way]("any", b"x")
            errors = getattr(caught.value, "results", [caught.value])
            assert isinstance(errors[0], (PermissionDenied, RouteError)), errors


def test_what_is_too_large_for_the_broker_alone_is_refused_with_both_sizes(
    form: Callable[..., Any],
) -> None:
    # Random, so that it cannot be compressed.
    body = random.Random(1).randbytes(20_000)
    with (
        cluster(max_message_size=10_000) as running,
        form(name_server=running.name_server) as ways,
    ):
        ways["send"]("small", b"x")
        for way in WAYS:
            if way == "send_oneway":
                continue
            with pytest.raises(RmqError) as caught:
                ways[way]("small", body)
            told = getattr(caught.value, "results", [caught.value])[0]
            assert isinstance(told, MessageRefused), (way, told)
            assert re.search(r"has 20\d\d\d bytes, maxMessageSize is 10000", str(told)), (way, told)
        ways["send"]("small", b"x")


@contextmanager
def talking(answer: bytes | None) -> Iterator[str]:
    """Run a server that is not RocketMQ's: it sends the same bytes to every client, or nothing."""

    def serve(one: socket.socket) -> None:
        if answer is not None:
            one.sendall(answer)
        while one.recv(65_536):
            pass

    with listening(serve) as place:
        yield place


def test_a_wrong_name_server_is_recognized_by_what_it_does(shared: Cluster, topic: str) -> None:
    with (
        Producer(name_server=shared.broker.address) as producer,
        pytest.raises(NotSupported, match=f"{shared.broker.address} answered a route query"),
    ):
        producer.send(topic, b"x")
    with (
        talking(b"HTTP/1.1 400 Bad Request\r\n\r\n") as place,
        Producer(name_server=place) as producer,
        pytest.raises(NameServerUnreachable, match=f"tried .*{place}"),
    ):
        producer.send(topic, b"x")


def test_a_silent_name_server_ends_a_send_in_its_time(topic: str, form: Callable[..., Any]) -> None:
    with talking(None) as place, form(name_server=place, send_timeout=0.3) as ways:
        for way in ("send", "send_async", "produce", "send_batch"):
            began = time.monotonic()
            with pytest.raises(RmqError) as caught:
                ways[way](topic, b"x")
            errors = getattr(caught.value, "results", [caught.value])
            assert isinstance(errors[0], (SendTimeout, NameServerUnreachable)), errors
            assert not errors[0].may_exist
            assert time.monotonic() - began < 10


def test_errors_list_each_attempt_with_its_time_and_cause(topic: str) -> None:
    with cluster() as running, Producer(name_server=running.name_server) as producer:
        producer.send(topic, b"x")
        place = running.broker.address
        running.stop_broker()
        with pytest.raises((SendTimeout, ConnectionLost)) as caught:
            producer.send(topic, b"x", timeout=0.3)
        text = str(caught.value)
        assert "it was not stored" in text
        assert re.search(r"1\. broker-a queue \d at \d+ ms for", text), text
        assert place in text
        assert not caught.value.may_exist
        assert caught.value.__cause__ is not None


def test_what_a_callback_of_a_future_raises_is_logged_and_harms_nobody(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(name_server=address) as producer:
        first = producer.send_async(topic, b"1")
        first.add_done_callback(lambda _: 1 // 0)
        assert producer.send_async(topic, b"2").result(timeout=10).status.name == "SEND_OK"
        assert first.result(timeout=10).status.name == "SEND_OK"
        producer.close()
    assert "ZeroDivisionError" in caplog.text
