"""The options as a user's type checker sees them; mypy checks this file with the others.

A call that must be refused has a `type: ignore`: if it were accepted, mypy would report that as
unused.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import TYPE_CHECKING, Any, assert_type, get_args, get_type_hints

import pytest

from pyrmq import Message, Producer, TransactionProducer, _core, aio
from pyrmq._client.hooks.send import SendingKind
from pyrmq._client.options.producer import OtherProducerOptions, ProducerOptions
from pyrmq.errors import Attempt, RmqError, SendTimeout
from pyrmq.message import (
    BatchOptions,
    HalfOptions,
    MessageOptions,
    ReceivedMessage,
    ReplyOptions,
    RequestOptions,
    SendResult,
    TransactionState,
)
from pyrmq.producer import SendHook, Sending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NOWHERE = "127.0.0.1:1"


def check(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT if message.body else TransactionState.ROLLBACK


async def awaited(message: ReceivedMessage) -> TransactionState:
    return check(message)


def used_rightly() -> None:
    TransactionProducer(check=check, group="g", name_server=[NOWHERE], send_timeout=1, linger=0)
    aio.TransactionProducer(check=check, group="g", topics=["t"], compression="zstd")
    aio.TransactionProducer(check=awaited, group="g", durability="local", retries=5)


def used_wrongly() -> None:
    TransactionProducer(check=check)  # type: ignore[call-arg]
    TransactionProducer(check=check, group="g", send_timeout="3")  # type: ignore[arg-type]
    TransactionProducer(check=check, group="g", tiemout=3)  # type: ignore[call-arg]
    TransactionProducer(check=awaited, group="g")  # type: ignore[arg-type]
    aio.TransactionProducer(check=check)  # type: ignore[call-arg]
    aio.TransactionProducer(check=check, group="g", compression="brotli")  # type: ignore[arg-type]
    aio.TransactionProducer(check=check, group="g", tiemout=3)  # type: ignore[call-arg]


def sends_rightly(producer: Producer, given: MessageOptions) -> None:
    producer.send("t", b"x", timeout=1, keys=["a", "b"], tags=None, queue=lambda queues: queues[0])
    producer.send_async("t", b"x", timeout=1.5, **given)
    producer.produce("t", b"x", print, wait=False, **given)
    producer.send_batch("t", [b"x"], sharding_key="k", inner=True)


def sends_wrongly(producer: Producer, given: MessageOptions) -> None:
    producer.send("t", b"x", tag="red")  # type: ignore[call-arg]
    producer.send("t", b"x", tags=5)  # type: ignore[arg-type]
    producer.produce("t", b"x", flag="3")  # type: ignore[arg-type]
    producer.send_batch("t", [b"x"], delay=1)  # type: ignore[call-arg]
    producer.send_oneway("t", b"x", **given)  # type: ignore[misc]
    producer.request("t", b"x", sharding_key="k")  # type: ignore[call-arg]


def told_of(error: RmqError, result: SendResult, late: SendTimeout) -> None:
    assert_type(error.may_exist, bool)
    assert_type(error.message_id, str | None)
    assert_type(error.topic, str | None)
    assert_type(error.broker, str | None)
    assert_type(error.queue_id, int | None)
    assert_type(error.attempts, tuple[Attempt, ...])
    assert_type(late.attempts, tuple[Attempt, ...])
    assert_type(result.failed_attempts, tuple[Attempt, ...])


async def sent(producer: aio.Producer) -> None:
    assert_type(await producer.send("t", b"x"), SendResult)
    future: Awaitable[SendResult] = await producer.produce("t", b"x")
    assert_type(await future, SendResult)


OPTIONS_OF_KIND: dict[str, Any] = {
    "send": MessageOptions,
    "batch": BatchOptions,
    "oneway": BatchOptions,
    "request": RequestOptions,
    "reply": ReplyOptions,
    "half": HalfOptions,
}


def test_each_kind_of_send_has_a_type_for_its_options() -> None:
    assert set(OPTIONS_OF_KIND) == set(get_args(SendingKind))


@pytest.mark.parametrize("kind", OPTIONS_OF_KIND)
def test_the_typed_options_of_a_send_are_those_that_the_native_module_reads(kind: str) -> None:
    typed = set(get_type_hints(OPTIONS_OF_KIND[kind]))
    assert typed == set(_core.option_names(kind))
    _core.check_options(kind, dict.fromkeys(typed))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        _core.check_options(kind, {"speed": 5})  # type: ignore[typeddict-unknown-key]


def test_a_message_has_every_option_but_the_queue() -> None:
    fields = set(Message._fields) - {"topic", "body"}
    assert fields == set(get_type_hints(MessageOptions)) - {"queue"}


def test_every_option_of_a_message_is_documented() -> None:
    for option in get_type_hints(MessageOptions):
        assert f"        {option}: " in (MessageOptions.__doc__ or "")


@pytest.mark.parametrize(
    ("send", "options"),
    [
        (Producer.send, MessageOptions),
        (Producer.send_batch, BatchOptions),
        (Producer.send_oneway, BatchOptions),
        (TransactionProducer.send_in_transaction, HalfOptions),
    ],
)
def test_a_send_refers_to_its_options(send: Callable[..., Any], options: type) -> None:
    assert f":class:`pyrmq.message.{options.__name__}`" in (send.__doc__ or "")


def test_both_documentations_of_produce_say_the_same() -> None:
    """`help` reads the native method's, an editor the one in `producer.py`, with an example."""
    tree = ast.parse(inspect.getsource(Producer))
    written = next(
        ast.get_docstring(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "produce"
    )
    native = Producer.produce.__doc__
    assert native
    assert written
    assert native.split() == written.partition("Example:")[0].split()


SENDS: list[tuple[str, tuple[object, ...]]] = [
    ("send", ("t", b"x")),
    ("send_async", ("t", b"x")),
    ("produce", ("t", b"x")),
    ("send_batch", ("t", [b"x"])),
    ("send_oneway", ("t", b"x")),
    ("request", ("t", b"x")),
]


class Refused(SendHook):
    """No message gets as far as this hook."""

    def before_send(self, sending: Sending) -> None:
        """Fail the test."""
        pytest.fail(f"{sending} cannot be sent")


@pytest.mark.parametrize("hooks", [[], [Refused()]], ids=["plain", "hooked"])
@pytest.mark.parametrize(("verb", "arguments"), SENDS)
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(
    verb: str, arguments: tuple[object, ...], hooks: list[SendHook]
) -> None:
    meant = "unexpected keyword argument 'tag'"
    if verb != "produce":
        meant += ", did you mean 'tags'?"
    with (
        Producer(name_server=NOWHERE, hooks=hooks) as sync,
        pytest.raises(TypeError, match=meant),
    ):
        getattr(sync, verb)(*arguments, tag="red")

    async def main() -> None:
        async with aio.Producer(name_server=NOWHERE, hooks=hooks) as producer:
            with pytest.raises(TypeError, match=meant):
                await getattr(producer, verb)(*arguments, tag="red")

    if verb != "send_async":
        asyncio.run(main())


def test_the_typed_options_are_those_of_every_producer() -> None:
    theirs = set(get_type_hints(OtherProducerOptions)) | {"group"}
    assert theirs == set(ProducerOptions.__annotations__)
    parameters = set(inspect.signature(Producer.__init__).parameters) - {"self"}
    assert theirs == parameters


@pytest.mark.parametrize("name", sorted(get_type_hints(OtherProducerOptions)))
def test_each_typed_option_has_the_type_that_the_constructor_gives_it(name: str) -> None:
    plain = get_type_hints(ProducerOptions)[name]
    assert get_type_hints(OtherProducerOptions)[name] == plain
