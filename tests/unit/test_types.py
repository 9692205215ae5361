"""What a user's type checker knows of the options; mypy reads this file with the others.

A call that must be refused carries its `type: ignore`: where it were accepted, mypy would call that
unused.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, assert_type, get_type_hints

import pytest

from pyrmq import Producer, TransactionProducer, aio
from pyrmq._client.options import OtherProducerOptions, ProducerOptions
from pyrmq.errors import Attempt, RmqError, SendTimeout
from pyrmq.message import ReceivedMessage, SendResult, TransactionState

if TYPE_CHECKING:
    from collections.abc import Awaitable

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


def test_the_typed_options_are_those_of_every_producer() -> None:
    theirs = set(get_type_hints(OtherProducerOptions)) | {"group"}
    assert theirs == set(ProducerOptions.__annotations__)
    parameters = set(inspect.signature(Producer.__init__).parameters) - {"self"}
    assert theirs == parameters


@pytest.mark.parametrize("name", sorted(get_type_hints(OtherProducerOptions)))
def test_each_typed_option_has_the_type_that_the_constructor_gives_it(name: str) -> None:
    plain = get_type_hints(ProducerOptions)[name]
    assert get_type_hints(OtherProducerOptions)[name] == plain
