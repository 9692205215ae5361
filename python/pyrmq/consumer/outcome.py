"""The outcomes of a message: done, later, or never."""

from __future__ import annotations

from enum import Enum
from operator import index

from pyrmq.errors import ConfigError

__all__ = [
    "ConsumeResult",
    "DeadLetter",
    "Failure",
    "ReconsumeLater",
    "cause_of",
    "failure_of_error",
    "failure_of_result",
    "hand_back_time",
]

Failure = tuple[str, int]
"""What the native consumer does with a message: `later` with a delay level, `again` with a pause in
ms, `dead` or `untouched` with 0."""

LATER: Failure = ("later", 0)

_MAX_PAUSE_S = 86_400
_MIN_HAND_BACK_S = 3.0
_MAX_HAND_BACK_S = 12.5


class ConsumeResult(Enum):
    """What a listener returns (Apache ``ConsumeConcurrentlyStatus``); None means ``SUCCESS``.

    Attributes:
        SUCCESS: The message is done.
        RECONSUME_LATER: Deliver it again later: with ``order="none"`` by the broker, after 10 s, 30
            s, 1 min and so on up to 2 h, else in this process, after ``suspend_pause``.
    """

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume later"


class ReconsumeLater(Exception):
    """Raised by a listener: the message is delivered again later.

    Args:
        delay_level: 1 to 18, for 1 s 5 s 10 s 30 s 1 min 2 min ... 2 h; 0 lets the broker choose by
            the number of tries. Consumers that keep an order do not use it: give them `pause`.
        pause: Seconds until the message is delivered to this process again. The broker does not
            count such tries.

    Raises:
        ConfigError: The level is not a whole number from 0 to 18, or the pause is negative.

    Example:
        >>> ReconsumeLater(delay_level=3).failure
        ('later', 3)
    """

    failure: Failure = LATER

    def __init__(self, delay_level: int = 0, *, pause: float | None = None) -> None:
        try:
            delay_level = index(delay_level)
        except TypeError as error:
            text = f"`delay_level` is {delay_level!r}, it must be a whole number from 0 to 18"
            raise ConfigError(text) from error
        if not 0 <= delay_level <= 18:
            raise ConfigError(f"`delay_level` is {delay_level}, it must be 0 to 18")
        if pause is not None and not 0 <= pause <= _MAX_PAUSE_S:
            raise ConfigError(f"`pause` is {pause}, it must be 0 s to {_MAX_PAUSE_S} s (a day)")
        super().__init__(delay_level, pause)
        self.failure = ("later", delay_level) if pause is None else ("again", round(pause * 1000))


class DeadLetter(Exception):
    """Raised by a listener: the message can never be handled, and goes to ``%DLQ%<group>``.

    Args:
        reason: Why, for the log.

    Example:
        >>> str(DeadLetter("no such customer"))
        'no such customer'
    """

    failure: Failure = ("dead", 0)

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


def failure_of_result(result: object) -> Failure | None:
    """Read what a listener returned; None: the message is done.

    Raises:
        TypeError: It is not a value that a listener may return.
    """
    if result is None or result is ConsumeResult.SUCCESS:
        return None
    if result is ConsumeResult.RECONSUME_LATER:
        return LATER
    raise TypeError(
        f"a listener returned {result!r}: return None or ConsumeResult.SUCCESS when the message "
        "is done, ConsumeResult.RECONSUME_LATER to have it delivered again"
    )


def cause_of(error: BaseException) -> BaseException:
    """Unwrap exception groups of one, as `asyncio.TaskGroup` raises them when one task fails."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def failure_of_error(error: BaseException) -> Failure:
    """Read what a listener raised: everything but the two classes above means later.

    Raises:
        TypeError: A subclass has changed the outcome to one that the native consumer refuses.
    """
    cause = cause_of(error)
    if not isinstance(cause, ReconsumeLater | DeadLetter):
        return LATER
    what, value = cause.failure
    if what not in {"later", "again", "dead"}:
        raise TypeError(f"{cause!r} has an invalid outcome: {cause.failure!r}")
    return what, index(value)


def hand_back_time(left: float) -> float:
    """Return how long an ending consumer waits for messages on their way back to their brokers.

    A broker has 12 s to answer. If it takes a message back after the wait, it has a copy of it,
    since the message's position is not committed. So a call that fails at the last moment gets
    time, too.

    Args:
        left: Seconds left for the end.
    """
    return min(max(left, _MIN_HAND_BACK_S), _MAX_HAND_BACK_S)
