"""The exception tree."""

from __future__ import annotations

import inspect
import pickle

import pytest

from pyrmq import errors
from pyrmq.errors import BrokerError, MessageError, RmqError, for_code
from pyrmq.message import Message

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


def test_errors_that_go_to_another_process_keep_their_text() -> None:
    error = errors.ConnectionLost("gone", address="h:1", may_exist=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.address, copy.may_exist) == ("gone", "h:1", True)


def test_a_message_refuses_a_body_that_cannot_be_sent() -> None:
    with pytest.raises(MessageError, match="is dict"):
        Message("orders", {})  # type: ignore[arg-type]
    assert Message("orders", b"x", properties={"a": "b"}).properties == {"a": "b"}
