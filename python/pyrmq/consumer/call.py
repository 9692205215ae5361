"""One call of a listener: its argument, and what the result means for the message."""

from __future__ import annotations

import inspect
import logging
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrmq._client.failure_log import kind_of
from pyrmq.consumer.outcome import (
    DeadLetter,
    Failure,
    ReconsumeLater,
    cause_of,
    failure_of_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq._client.failure_log import FailureLog
    from pyrmq.consumer.decode import Decoder
    from pyrmq.message import ReceivedMessage

__all__ = [
    "Call",
    "Failed",
    "UnfitBody",
    "failure_of",
    "is_coroutine_function",
    "log_error",
    "raising",
]

_log = logging.getLogger("pyrmq.consumer")

_counting = threading.Lock()
"""Held to count; bodies that do not fit are rare enough for a lock."""

Failed = list[tuple[int, str, int]]
"""Messages that were not handled: index in the batch, and the outcome of each."""


@dataclass(eq=False)
class Call:
    """A listener and how to call it.

    Attributes:
        function: The listener.
        decode: Makes its argument of a message; None: the message itself.
        unfit: Bodies that did not fit the listener's annotation.
    """

    function: Callable[[Any], object]
    decode: Decoder | None
    unfit: int = 0

    def argument(self, message: ReceivedMessage) -> object:
        """Make the listener's argument.

        Raises:
            UnfitBody: The body does not fit the listener's annotation.
        """
        if self.decode is None:
            return message
        try:
            return self.decode(message)
        except Exception as error:
            with _counting:
                self.unfit += 1
            text = f"its body does not fit the listener's annotation: {error!r}"
            raise UnfitBody(text) from error


class UnfitBody(DeadLetter):
    """A body does not fit the annotation of the listener, so no call is made."""


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a function that raises an error."""

    def fail() -> Any:  # noqa: ANN401 - it returns nothing
        raise error

    return fail


def log_error(text: str, *arguments: object, error: BaseException | None = None) -> None:
    """Log for the application; its log handlers must not end the thread that calls listeners."""
    try:
        _log.error(text, *arguments, exc_info=error)
    except Exception:  # noqa: BLE001 - it goes where `logging` itself reports its handlers' errors
        if logging.raiseExceptions:
            traceback.print_exc()


def failure_of(
    failures: FailureLog, group: str, message: ReceivedMessage, error: BaseException
) -> Failure:
    """Log what a listener raised, and return the outcome of the message."""
    cause = cause_of(error)
    if isinstance(cause, ReconsumeLater):
        return failure_of_error(error)
    kind = (message.topic, *kind_of(cause))
    if isinstance(cause, DeadLetter):
        failures.add("group %s: dead letter %r: %s", group, message, cause, kind=kind)
    else:
        text = "group %s: a listener failed for %r; the message will be delivered again: %r"
        failures.add(text, group, message, cause, kind=kind, error=error)
    return failure_of_error(error)


def is_coroutine_function(listener: Callable[..., object]) -> bool:
    """Whether a call returns a coroutine: also for `functools.partial`, objects and `AsyncMock`."""
    if inspect.iscoroutinefunction(listener):
        return True
    # An AsyncMock has no more than the flags of a coroutine function.
    flags = getattr(getattr(listener, "__code__", None), "co_flags", 0)
    if flags & inspect.CO_COROUTINE:
        return True
    return not inspect.isroutine(listener) and inspect.iscoroutinefunction(type(listener).__call__)
