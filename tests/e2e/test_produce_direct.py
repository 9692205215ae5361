"""`produce` is a native method, and callers see no difference."""

# ruff: noqa: ANN401 - calls are passed through
from __future__ import annotations

import ast
import gc
import inspect
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from pyrmq import (
    ClosedError,
    ConfigError,
    Message,
    MessageError,
    Producer,
    PullConsumer,
    QueueId,
    ReceivedMessage,
)
from pyrmq.message import MessageOptions
from pyrmq.producer import SendHook, Sending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq import RmqError, SendResult


class Around(Producer):
    """A producer with its own `produce`."""

    calls = 0

    def produce(self, *arguments: Any, **options: Any) -> None:
        """Count the call and pass it on."""
        self.calls += 1
        super().produce(*arguments, **options)


def test_the_native_method_has_the_signature_of_the_documented_one() -> None:
    source = inspect.getsource(Producer)
    (written,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "produce"
    )
    given = written.args
    values = [ast.literal_eval(one) for one in (*given.defaults, *given.kw_defaults) if one]
    assert given.kwarg
    assert given.kwarg.annotation
    assert ast.unparse(given.kwarg.annotation) == "Unpack[MessageOptions]"
    native = list(inspect.signature(Producer.produce).parameters.values())
    options = set(get_type_hints(MessageOptions))
    assert options == {one.name for one in native[-len(options) :]}
    assert {one.name: one.default for one in native if one.default is not one.empty} == {
        **dict.fromkeys(options),
        "on_delivery": None,
        "wait": True,
        "flag": ...,
        "delay_level": ...,
    }
    native = native[: -len(options)]
    assert [one.name for one in native] == [one.arg for one in (*given.args, *given.kwonlyargs)]
    kinds = [one.kind is inspect.Parameter.KEYWORD_ONLY for one in native]
    assert kinds == [False] * len(given.args) + [True] * len(given.kwonlyargs)
    assert [one.default for one in native if one.default is not one.empty] == values
    said = ast.get_docstring(written) or ""
    assert said.split("Example:")[0].split() == (Producer.produce.__doc__ or "").split()


def test_what_stands_between_is_not_left_out(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    with Around(name_server=address) as around:
        around.produce(topic, b"x", tags="t")
        assert around.flush()
        assert (around.calls, around.stats().confirmed) == (1, 1)

    class Seen(SendHook):
        def before_send(self, sending: Sending) -> None:
            seen.append(sending.topic)

    original: Any = Producer.produce

    def wrapped(self: Producer, topic: str, *arguments: Any, **options: Any) -> None:
        seen.append(topic)
        original(self, topic, *arguments, **options)

    with Producer(name_server=address, hooks=[Seen()]) as hooked:
        hooked.produce(topic, b"x", None, keys="k", flag=3)
        assert hooked.flush()
        assert (seen, hooked.stats().confirmed) == ([topic], 1)
    seen.clear()

    monkeypatch.setattr(Producer, "produce", wrapped)
    with Producer(name_server=address) as producer:
        producer.produce(topic, b"x")
        assert producer.flush()
        assert producer.stats().confirmed == 1
    assert seen == [topic]


def test_the_method_alone_keeps_its_producer(address: str, topic: str) -> None:
    produce = Producer(name_server=address).produce
    gc.collect()
    produce(topic, b"x")
    owner: Any = produce
    assert owner.__self__.flush()
    owner.__self__.close()


@pytest.mark.parametrize("form", [Producer, Around])
def test_every_argument_means_what_it_says(form: type[Producer], address: str, topic: str) -> None:
    told: list[tuple[RmqError | None, SendResult | None]] = []
    soon = datetime.now(UTC) + timedelta(milliseconds=1)
    asked: list[int] = []

    def last(queues: Sequence[QueueId]) -> QueueId:
        asked.append(len(queues))
        return queues[-1]

    with form(name_server=address, default_queues=4) as producer:
        broker = producer.send(topic, b"first").broker

        def tell(*outcome: Any) -> None:
            told.append(outcome)

        producer.produce(topic, "text", tell, keys=["a", "b"], tags="red", flag=7)
        producer.produce(topic, bytearray(b"mapping"), properties=MappingProxyType({"p": "1"}))
        producer.produce(topic, b"dict", on_delivery=None, properties={"p": "2"}, sharding_key="k")
        producer.produce(topic, memoryview(b"number"), queue=3)
        producer.produce(topic, b"queue", queue=QueueId(topic, broker, 2))
        producer.produce(topic, b"chosen", queue=last, wait=False)
        producer.produce(topic=topic, body=b"named", on_delivery=tell, delay_level=0, delay=None)
        producer.produce(topic, b"later", delay=0.001)
        producer.produce(topic, b"then", deliver_at=soon)
        assert producer.flush()
        assert producer.stats().confirmed == 10
    assert asked == [8]
    assert [error for error, _ in told] == [None, None]

    found: dict[bytes, ReceivedMessage] = {}
    with PullConsumer(name_server=address, group=f"all-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < 10:
            messages = consumer.poll(timeout=20)
            assert messages, sorted(found)
            found.update((message.body, message) for message in messages)
    text = found[b"text"]
    assert (text.keys, text.tags, text.flag) == (["a", "b"], "red", 7)
    assert found[b"mapping"].properties["p"] == "1"
    assert found[b"dict"].properties["p"] == "2"
    assert [found[name].queue_id for name in (b"number", b"queue", b"chosen")] == [3, 2, 3]


@pytest.mark.parametrize("form", [Producer, Around])
def test_mistakes_are_the_same_errors(form: type[Producer], address: str, topic: str) -> None:
    told: list[object] = []
    with form(name_server=address) as producer:
        wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (MessageError, "only one can be given", {"delay": 1.0, "delay_level": 3}),
            (MessageError, "a time of 0 s or more", {"delay": -1.0}),
            (MessageError, "delay level", {"delay_level": -1}),
            (ConfigError, "is not of topic", {"queue": QueueId("other", "b", 0)}),
            (ConfigError, "must return a queue", {"queue": lambda _: "no"}),
            (MessageError, "a name is not empty", {"properties": {"": "x"}}),
            (TypeError, "not iterable", {"properties": 5}),
            (TypeError, "tags", {"tags": 5}),
            (TypeError, "wait", {"wait": "yes"}),
            (TypeError, "unexpected keyword argument 'speed'", {"speed": 5}),
        ]
        for kind, match, options in wrong:
            with pytest.raises(kind, match=match):
                producer.produce(topic, b"x", lambda *outcome: told.append(outcome), **options)
        nobody: Any = producer.produce
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            nobody(topic)
        with pytest.raises(TypeError, match="a body is bytes"):
            nobody(topic, Message(topic, b"x"))
        assert producer.flush()
    assert told == []
    with pytest.raises(ClosedError, match="the producer is closed"):
        producer.produce(topic, b"x")
