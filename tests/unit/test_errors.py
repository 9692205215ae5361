"""The exception tree."""

from __future__ import annotations

import copy
import inspect
from pickle import dumps, loads
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import errors
from pyrmq.errors import (
    Attempt,
    BatchSendError,
    BrokerError,
    MessageError,
    RmqError,
    SendTimeout,
    for_code,
)
from pyrmq.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, Exception)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_is_in_the_tree_public_and_described(kind: type[Exception]) -> None:
    assert issubclass(kind, RmqError)
    assert kind.__name__ in errors.__all__
    assert kind.__doc__


def test_a_class_is_found_by_its_code() -> None:
    names = {code: for_code(code).__name__ for code in (1, 2, 3, 13, 14, 16, 17, 23, 26, 215)}
    assert names == {
        1: "BrokerError",
        2: "BrokerBusy",
        3: "NotSupported",
        13: "MessageRefused",
        14: "ServiceUnavailable",
        16: "PermissionDenied",
        17: "TopicNotFound",
        23: "SubscriptionError",
        26: "SubscriptionError",
        215: "BrokerBusy",
    }
    assert all(issubclass(for_code(code), BrokerError) for code in range(300))


def test_errors_say_whether_to_try_again() -> None:
    assert errors.BrokerBusy.retriable
    assert errors.ConnectionLost.retriable
    assert not errors.MessageError.retriable
    assert not errors.TopicNotFound.retriable


ATTEMPT = Attempt(1, "broker-a", 3, 0.0, 1.5, "no answer", True)
ABOUT: dict[str, Any] = {
    "topic": "orders",
    "broker": "broker-a",
    "queue_id": 3,
    "message_id": "0A01",
    "may_exist": True,
    "attempts": [ATTEMPT],
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda e: loads(dumps(e))])
def test_every_error_keeps_what_it_knows_in_a_copy_and_in_another_process(
    kind: type[Any], again: Callable[[RmqError], RmqError]
) -> None:
    if kind is BatchSendError:
        error: RmqError = BatchSendError("orders", [SendTimeout("late", **ABOUT), 7])
    else:
        error = kind("what happened", **ABOUT)
        assert error.message_id == "0A01"
    made = again(error)
    assert type(made) is kind
    assert (str(made), made.args) == (str(error), error.args)
    assert made.__dict__.keys() == error.__dict__.keys()
    assert (made.topic, made.may_exist, made.attempts) == ("orders", True, (ATTEMPT,))


def test_an_error_that_concerns_no_message_says_so() -> None:
    error = errors.ConfigError("no")
    known = (error.topic, error.broker, error.queue_id, error.message_id)
    assert known == (None, None, None, None)
    assert (error.may_exist, error.attempts) == (False, ())


def test_errors_with_constructors_of_their_own_can_be_copied() -> None:
    class Odd(errors.ConfigError):
        def __init__(self, option: str, problem: str) -> None:
            super().__init__(f"{option}: {problem}")
            self.option = option

    made = copy.copy(Odd("topic", "missing"))
    assert (str(made), made.option) == ("topic: missing", "topic")


def test_a_message_refuses_a_body_that_cannot_be_sent() -> None:
    with pytest.raises(MessageError, match="is dict"):
        Message("orders", {})  # type: ignore[arg-type]
    assert Message("orders", b"x", properties={"a": "b"}).properties == {"a": "b"}
