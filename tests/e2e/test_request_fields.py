"""Fields that an application adds to every request of its producers and consumers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import socket
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.balancer import carry
from tests.e2e.relay import BROKER_IP, frames, listening
from tests.e2e.test_security import Secured, bob, root
from tests.e2e.ways import FORMS, WAYS
from tests.e2e.wire import await_true
from tests.reference.frame import Frame, decode

from pyrmq import (
    Admin,
    Credentials,
    Producer,
    PullConsumer,
    PushConsumer,
    ReconsumeLater,
    RmqError,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    aio,
)
from pyrmq.codes import RequestCode
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "a-secret-of-the-application"
# Before, between and after the names of a send's header in the order of a signature's hash.
ADDED = {"Zone": "north", "color": 'ü€"\\', "tenant": "kitchen", "empty": ""}
TOPIC = "orders"


class Recorder:
    """A cluster of one broker, whose clients' requests are recorded on their way."""

    def __init__(self, stack: ExitStack) -> None:
        self.requests: list[Frame] = []
        self.opened = {"name server": 0, "broker": 0}
        running = stack.enter_context(cluster(broker_ip1=BROKER_IP, recall_message_enable=True))
        self._ports = {
            "name server": int(running.name_server.rpartition(":")[2]),
            "broker": int(running.broker.address.rpartition(":")[2]),
        }
        self.address = stack.enter_context(listening(lambda one: self._relay("name server", one)))
        serve = lambda one: self._relay("broker", one)  # noqa: E731 - as above
        stack.enter_context(listening(serve, BROKER_IP, self._ports["broker"]))
        with Admin(name_server=self.address) as admin:
            admin.create_topic(TOPIC, queues=2)
            admin.create_topic("questions", queues=1)

    def _relay(self, name: str, client: socket.socket) -> None:
        self.opened[name] += 1
        with socket.create_connection(("127.0.0.1", self._ports[name])) as server:
            backward = threading.Thread(target=carry, args=(server, client))
            backward.start()
            with suppress(OSError):
                for whole in frames(client):
                    frame = decode(whole)
                    if not frame.is_response:
                        self.requests.append(frame)
                    server.sendall(whole)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            backward.join()

    def fill(self, messages: int) -> None:
        """Store messages, and forget all requests until then."""
        with Producer(name_server=self.address) as producer:
            producer.send_batch(TOPIC, [b"%d" % number for number in range(messages)])
        self.requests.clear()

    def codes(self) -> set[int]:
        """The codes of the recorded requests."""
        return {request.code for request in [*self.requests]}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with ExitStack() as stack:
        yield Recorder(stack)


@pytest.fixture(params=["unsigned", "signed"])
def options(recorder: Recorder, request: pytest.FixtureRequest) -> dict[str, Any]:
    signed = request.param == "signed"
    return {
        "name_server": recorder.address,
        "request_fields": ADDED,
        "credentials": Credentials("app", SECRET) if signed else None,
    }


def check(recorder: Recorder, options: dict[str, Any], expected: set[RequestCode]) -> None:
    """Each request has the fields, and a signature over them; these codes are among them."""
    with suppress(AssertionError):
        await_true(lambda: expected <= recorder.codes())
    assert expected - recorder.codes() == set()
    for request in recorder.requests:
        fields = request.fields or {}
        assert {name: fields.get(name) for name in ADDED} == ADDED, request
        signature = fields.pop("Signature", None)
        if options["credentials"] is None:
            assert signature is None
            continue
        content = "".join(fields[name] for name in sorted(fields)).encode() + (request.body or b"")
        digest = hmac.new(SECRET.encode(), content, hashlib.sha1).digest()
        assert signature == base64.b64encode(digest).decode(), request


@pytest.mark.parametrize("form", sorted(FORMS))
def test_each_request_of_a_producer_has_the_fields(
    recorder: Recorder, options: dict[str, Any], form: str
) -> None:
    recorder.fill(1)
    with FORMS[form](**options, trace=True) as ways:
        for way in WAYS:
            if way == "request":
                # Nobody replies.
                with pytest.raises((RmqError, TimeoutError)):
                    ways[way](TOPIC, b"x", timeout=0.3)
            else:
                ways[way](TOPIC, b"x")
        await_true(lambda: len(trace_sends(recorder)) > 0)
    expected = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.HEART_BEAT,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.UNREGISTER_CLIENT,
    }
    check(recorder, options, expected)


def trace_sends(recorder: Recorder) -> list[Frame]:
    """The sends of traces."""
    return [
        one for one in [*recorder.requests] if (one.fields or {}).get("b") == "RMQ_SYS_TRACE_TOPIC"
    ]


def test_batches_ends_of_transactions_replies_and_recalls_have_the_fields(
    recorder: Recorder, options: dict[str, Any]
) -> None:
    recorder.fill(1)
    commit = lambda _: TransactionState.COMMIT  # noqa: E731 - of every transaction
    with (
        TransactionProducer(**options, group="p", check=commit, linger=0.05) as producer,
        PullConsumer(**options, group="k") as asked,
    ):
        producer.send_in_transaction(TOPIC, b"x", commit)
        producer.send_batch(TOPIC, [b"%d" % number for number in range(100)])
        for number in range(1000):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(timeout=20)
        handle = producer.send(TOPIC, b"later", delay=60).recall_handle
        assert handle
        producer.recall(TOPIC, handle)
        asked.subscribe("questions")
        future = producer.request_async("questions", b"?", timeout=30)
        message = None
        while message is None:
            message = next(iter(asked.poll(timeout=1)), None)
        producer.reply(message, b"!")
        assert future.result(30).body == b"!"
    expected = {
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
    check(recorder, options, expected)


def test_each_request_of_a_push_consumer_has_the_fields(
    recorder: Recorder, options: dict[str, Any]
) -> None:
    recorder.fill(20)
    handled: set[bytes] = set()

    def handle(message: Any) -> None:  # noqa: ANN401 - of either form
        if message.body not in handled:
            handled.add(message.body)
            raise ReconsumeLater(0)

    for order in ("none", "queue"):
        handled.clear()
        consumer = PushConsumer(**options, group=f"by-{order}", order=order, trace=True)
        consumer.subscribe(TOPIC, handle)
        with consumer:
            await_true(lambda: len(handled) == 20, 30)
            await_true(lambda: len(trace_sends(recorder)) > 0)
    expected = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.HEART_BEAT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.PULL_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UNREGISTER_CLIENT,
    }
    check(recorder, options, expected)


def test_each_request_of_a_pull_consumer_has_the_fields(
    recorder: Recorder, options: dict[str, Any]
) -> None:
    recorder.fill(20)
    with PullConsumer(**options, group="pulling") as consumer:
        consumer.subscribe(re.compile("ord.*"))
        found = 0
        while found < 20:
            found += len(consumer.poll(timeout=30))
        consumer.commit()
        for queue in consumer.queues(TOPIC):
            consumer.committed(queue)
            consumer.bounds(queue)
    expected = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UNREGISTER_CLIENT,
    }
    check(recorder, options, expected)


def test_each_request_of_a_simple_consumer_has_the_fields(
    recorder: Recorder, options: dict[str, Any]
) -> None:
    recorder.fill(20)
    with SimpleConsumer(**options, group="popping") as consumer:
        consumer.subscribe(TOPIC)
        first, second, *others = [*consumer.receive(32, wait=10.0)]
        consumer.ack(first)
        consumer.change_invisible(second, 30.0)
        consumer.ack(others)
    expected = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    }
    check(recorder, options, expected)


def test_clients_of_one_connection_have_fields_of_their_own(recorder: Recorder) -> None:
    recorder.fill(1)
    before = recorder.opened["broker"]
    with ExitStack() as stack:
        for tenant in ("one", "two", ""):
            fields = {"tenant": tenant} if tenant else None
            made = Producer(name_server=recorder.address, group=f"g{tenant}", request_fields=fields)
            producer = stack.enter_context(made)
            for number in range(3):
                producer.send(TOPIC, b"%d" % number)
        await_true(lambda: len(heartbeats(recorder)) >= 3)
        assert recorder.opened["broker"] == before + 1
    seen: dict[str, set[str | None]] = {}
    for request in recorder.requests:
        fields = request.fields or {}
        group = fields.get("a") or fields.get("producerGroup")
        if request.code == RequestCode.HEART_BEAT:
            [member] = json.loads(request.body or b"")["producerDataSet"]
            group = member["groupName"]
        if group is not None:
            seen.setdefault(group, set()).add(fields.get("tenant"))
    assert seen == {"gone": {"one"}, "gtwo": {"two"}, "g": {None}}


def heartbeats(recorder: Recorder) -> list[Frame]:
    """The recorded heartbeats."""
    return [one for one in [*recorder.requests] if one.code == RequestCode.HEART_BEAT]


def test_a_checking_broker_finds_the_signature_right(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    try:
        with Admin(name_server=secured.address, credentials=root()) as admin:
            admin.create_topic(TOPIC)
        options: dict[str, Any] = {
            "name_server": secured.address,
            "credentials": bob(),
            "request_fields": ADDED,
        }
        with Producer(**options) as producer:
            producer.send(TOPIC, b"one")
            producer.send_batch(TOPIC, [b"%d" % number for number in range(10)])
        with PullConsumer(**options, group="kitchen") as consumer:
            consumer.subscribe(TOPIC)
            found = 0
            while found < 11:
                found += len(consumer.poll(timeout=30))
            consumer.commit()
    finally:
        secured.stop()


def test_forms_for_event_loops_take_the_option(recorder: Recorder) -> None:
    recorder.fill(3)
    options: dict[str, Any] = {
        "name_server": recorder.address,
        "request_fields": ADDED,
        "credentials": None,
    }

    async def main() -> None:
        handled = asyncio.Event()

        async def handle(_: object) -> None:
            handled.set()

        async with aio.PullConsumer(**options, group="a") as pulling:
            await pulling.subscribe(TOPIC)
            assert await pulling.poll(timeout=30)
        async with aio.SimpleConsumer(**options, group="b") as popping:
            await popping.subscribe(TOPIC)
            assert await popping.receive(32, wait=10.0)
        pushed = aio.PushConsumer(**options, group="c")
        pushed.subscribe(TOPIC, handle)
        async with pushed:
            await asyncio.wait_for(handled.wait(), 30)

    asyncio.run(main())
    check(recorder, options, {RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE})
