"""Callbacks when queues of a group come and go (Kafka ``ConsumerRebalanceListener``)."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from pyrmq.errors import CommitError, ConfigError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from pyrmq._client.options.consumer import ConsumerOptions, OnRebalance
    from pyrmq._core import ConsumerControl

__all__ = [
    "CLOSE_S",
    "RebalanceCallbacks",
    "hangs",
    "rebalance_callbacks",
    "refuse_nested_poll",
]

_log = logging.getLogger("pyrmq.consumer")

CLOSE_S = 5.0
"""Time that a close or `unsubscribe` waits for a callback that runs in another thread."""


def rebalance_callbacks(options: ConsumerOptions) -> dict[str, OnRebalance | None]:
    """Return the callback of each kind of event; lost queues without one are revoked."""
    return {
        "assigned": options.on_assigned,
        "revoked": options.on_revoked,
        "lost": options.on_lost or options.on_revoked,
    }


def refuse_nested_poll() -> ConfigError:
    """Make the error of a callback that polls."""
    return ConfigError(
        "a callback for queues that were assigned, revoked or lost must not poll its consumer: "
        "seek, commit or pause there, and poll when it has returned"
    )


def hangs(group: str) -> None:
    """Log that a callback has not returned."""
    text = "group %s: a callback for queues has not returned for %g s; they go back without it"
    _log.error(text, group, CLOSE_S)


class RebalanceCallbacks:
    """Calls the application in the thread that polls, unsubscribes or closes.

    Args:
        control: The native consumer.
        options: Its options.
    """

    def __init__(self, control: ConsumerControl, options: ConsumerOptions) -> None:
        self._events = control.rebalance_events()
        self._callbacks = rebalance_callbacks(options)
        # One callback at a time. A callback may close its consumer, which calls the next one.
        self._lock = threading.RLock()
        self._thread: int | None = None
        self._group = options.group
        self._pid = os.getpid()

    def before_poll(self, consumer: object, timeout: float | None) -> CommitError | None:
        """Make the calls that are due; see :meth:`call`.

        Args:
            consumer: Argument of the callbacks.
            timeout: Seconds to wait for a callback that runs in another thread; None: no limit.

        Raises:
            ConfigError: A callback polls.
        """
        if self._thread == threading.get_ident():
            raise refuse_nested_poll()
        _, failure = self._call(consumer, all_done=True, timeout=timeout)
        return failure

    def _call(
        self, consumer: object, *, all_done: bool, timeout: float | None
    ) -> tuple[bool, CommitError | None]:
        """Make the calls that are due.

        Args:
            consumer: Argument of the callbacks.
            all_done: Whether messages returned from queues that go back are done.
            timeout: Seconds to wait for a callback that runs in another thread.

        Returns:
            Whether the calls were made in time, and why the last offsets of revoked queues could
            not be committed.
        """
        failure: CommitError | None = None
        if os.getpid() != self._pid:
            # Raises ForkError in a child: the lock may have been held at the fork.
            self._events.next(all_done)
        limit = -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=limit):
            return False, None
        try:
            before, self._thread = self._thread, threading.get_ident()
            try:
                while (event := self._events.next(all_done)) is not None:
                    failure = self._call_one(consumer, *event) or failure
            finally:
                self._thread = before
        finally:
            self._lock.release()
        return True, failure

    def retire(self, consumer: object, topic: str | None, *, all_done: bool) -> CommitError | None:
        """Have the queues of a topic, or all queues, revoked before they go back."""
        if os.getpid() != self._pid:
            # In a forked child a close does nothing, and everything else raises ForkError.
            return None
        if topic is None:
            self._events.retire_all()
        else:
            self._events.retire(topic)
        in_time, failure = self._call(consumer, all_done=all_done, timeout=CLOSE_S)
        if not in_time:
            hangs(self._group)
        return failure

    def _call_one(
        self, consumer: object, kind: str, places: list[tuple[str, str, int]]
    ) -> CommitError | None:
        callback = self._callbacks[kind]
        failure: CommitError | None = None
        has_returned = False
        try:
            if callback is not None:
                callback(consumer, [QueueId(*place) for place in places])
            has_returned = True
        finally:
            try:
                self._events.end(kind, places, has_returned)
            except CommitError as error:
                failure = error
        return failure
