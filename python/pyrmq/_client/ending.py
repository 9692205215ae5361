"""The end of a producer that nobody closed."""

import logging
from typing import Protocol

from pyrmq.errors import ForkError

__all__ = ["abandon"]

_log = logging.getLogger("pyrmq.producer")
_ABANDONED_MS = 2000


class Ending(Protocol):
    """What ends with a producer."""

    def close(self) -> None:
        """Take nothing more."""
        ...


class Gathering(Ending, Protocol):
    """A native accumulator, as far as its end needs it."""

    def flush(self, timeout_ms: int) -> bool:
        """Send what is gathered, and wait."""
        ...

    def end(self) -> None:
        """End its threads."""
        ...


class Sending(Ending, Protocol):
    """A native producer, as far as its end needs it."""

    def shut(self) -> None:
        """End every connection."""
        ...


def abandon(core: Sending, gathering: Gathering, asked: Ending | None = None) -> None:
    """End a producer that nobody closed: what it has gathered leaves, for 2 s at most."""
    try:
        gathering.close()
        if not gathering.flush(_ABANDONED_MS):
            _log.warning("a producer was dropped without close, with messages unconfirmed")
    except ForkError:
        # It is the parent's to end.
        return
    finally:
        if asked is not None:
            asked.close()
        core.close()
        core.shut()
    gathering.end()
