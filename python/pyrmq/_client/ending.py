"""The end of a producer, closed or dropped."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from pyrmq.errors import ForkError, RmqError

__all__ = ["abandon", "end", "end_connections", "end_dropped", "is_interruption", "leave"]

_log = logging.getLogger("pyrmq.producer")
_ABANDONED_MS = 2000


class Ending(Protocol):
    """A part of a producer that can be closed."""

    def close(self) -> None:
        """Stop taking messages."""
        ...


class Leaving(Protocol):
    """A native consumer: the part that its end needs."""

    def shut(self, all_done: bool, /) -> None:  # noqa: FBT001 - as the native one
        """Commit, leave the group, end every connection."""
        ...


class AccumulatorEnd(Ending, Protocol):
    """A native accumulator: the part that its end needs."""

    def flush(self, timeout_ms: int) -> bool:
        """Send all open batches, and wait."""
        ...

    def poll(self, timeout_ms: int) -> int:
        """Run the callbacks that are due."""
        ...

    def end(self) -> None:
        """End its threads."""
        ...


class Sending(Ending, Protocol):
    """A native producer: the part that its end needs."""

    def shut(self) -> None:
        """End every connection."""
        ...


def is_interruption(kind: type[BaseException] | None) -> bool:
    """Whether this is Ctrl-C, after which nothing may wait long for a silent name server."""
    return kind is not None and issubclass(kind, KeyboardInterrupt)


def abandon(
    core: Sending, accumulator: AccumulatorEnd, request_reply: Ending | None = None
) -> None:
    """End a producer that was not closed: its open batches are sent, for at most 2 s."""
    try:
        accumulator.close()
        if not accumulator.flush(_ABANDONED_MS):
            _log.warning("a producer was dropped without close, with messages unconfirmed")
    except ForkError:
        # It belongs to the parent, which closes it.
        return
    finally:
        if request_reply is not None:
            request_reply.close()
        core.close()
        core.shut()
    accumulator.end()


def end_connections(core: Sending, request_reply: Ending) -> None:
    """Close every connection of a producer, and stop answering brokers."""
    try:
        request_reply.close()
    finally:
        core.close()
        core.shut()


def end(
    core: Sending,
    accumulator: AccumulatorEnd,
    request_reply: Ending,
    futures: threading.Thread | None,
) -> None:
    """End a producer's connections and threads, even when Ctrl-C interrupts it."""
    try:
        end_connections(core, request_reply)
        # Run the callbacks of messages that failed because of the close.
        accumulator.poll(0)
    finally:
        accumulator.end()
    # A callback may close its producer; this is then the current thread.
    if futures is not None and futures is not threading.current_thread():
        futures.join()


def leave(core: Leaving) -> None:
    """End a consumer that was not closed; a failed commit is logged."""
    end_dropped(partial(core.shut, False))


def end_dropped(close: Callable[[], None]) -> None:
    """Close a consumer that was dropped; a failure is logged."""
    try:
        close()
    except RmqError as error:
        logging.getLogger("pyrmq.consumer").warning(
            "a consumer was dropped without close: %s", error
        )
