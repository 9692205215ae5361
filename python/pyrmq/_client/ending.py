"""The end of a producer, closed or dropped."""

import logging
import threading
from typing import Protocol

from pyrmq.errors import ForkError, RmqError

__all__ = ["abandon", "end", "end_connections", "leave"]

_log = logging.getLogger("pyrmq.producer")
_ABANDONED_MS = 2000


class Ending(Protocol):
    """What ends with a producer."""

    def close(self) -> None:
        """Take nothing more."""
        ...


class Leaving(Protocol):
    """A native consumer, as far as its end needs it."""

    def shut(self, all_done: bool, /) -> None:  # noqa: FBT001 - as the native one
        """Commit, leave the group, end every connection."""
        ...


class AccumulatorEnd(Ending, Protocol):
    """A native accumulator, as far as its end needs it."""

    def flush(self, timeout_ms: int) -> bool:
        """Send what is gathered, and wait."""
        ...

    def poll(self, timeout_ms: int) -> int:
        """Run the callbacks that are due."""
        ...

    def end(self) -> None:
        """End its threads."""
        ...


class Sending(Ending, Protocol):
    """A native producer, as far as its end needs it."""

    def shut(self) -> None:
        """End every connection."""
        ...


def abandon(core: Sending, accumulator: AccumulatorEnd, asked: Ending | None = None) -> None:
    """End a producer that nobody closed: what it has gathered leaves, for 2 s at most."""
    try:
        accumulator.close()
        if not accumulator.flush(_ABANDONED_MS):
            _log.warning("a producer was dropped without close, with messages unconfirmed")
    except ForkError:
        # It is the parent's to end.
        return
    finally:
        if asked is not None:
            asked.close()
        core.close()
        core.shut()
    accumulator.end()


def end_connections(core: Sending, asked: Ending) -> None:
    """End every connection of a producer, and what takes questions of brokers."""
    try:
        asked.close()
    finally:
        core.close()
        core.shut()


def end(
    core: Sending, accumulator: AccumulatorEnd, asked: Ending, futures: threading.Thread | None
) -> None:
    """End a producer's connections and threads; a Ctrl-C meanwhile leaves none of them behind."""
    try:
        end_connections(core, asked)
        # What failed by the end is told, too.
        accumulator.poll(0)
    finally:
        accumulator.end()
    # In a callback the thread is this one.
    if futures is not None and futures is not threading.current_thread():
        futures.join()


def leave(core: Leaving) -> None:
    """End a consumer that nobody closed; what cannot be committed is logged."""
    try:
        core.shut(False)
    except RmqError as error:
        logging.getLogger("pyrmq.consumer").warning(
            "a consumer was dropped without close: %s", error
        )
