"""Failures that may come with every message, in few lines of the log."""

from __future__ import annotations

import logging
import os
import threading
import traceback
from time import monotonic
from typing import Any

__all__ = ["LINE_S", "FailureLog", "kind_of"]

_log = logging.getLogger("pyrmq.consumer")

LINE_S = 10.0
"""Seconds between two lines of one kind."""

_STACK_S = 3600.0
"""Seconds after which a kind's stack is logged again: an old log file may be deleted by then."""

_KINDS = 100
"""Kinds that are counted apart. Further ones count together, by their text."""

_CAUSES = 5
_LENGTH = 4000
"""Characters of a line without its stack."""

_Kind = tuple[Any, ...]


def kind_of(error: BaseException) -> _Kind:
    """Return an exception's type and the line that raised it, and those of its causes.

    The line alone is not enough: one line of this package raises for every body that does not fit.

    Example:
        >>> kind_of(ValueError("one")) == kind_of(ValueError("two"))
        True
    """
    kind: list[object] = []
    one: BaseException | None = error
    for _ in range(_CAUSES):
        if one is None:
            break
        step = one.__traceback__
        while step is not None and step.tb_next is not None:
            step = step.tb_next
        place = None if step is None else (step.tb_frame.f_code.co_filename, step.tb_lineno)
        kind += [type(one), place]
        one = one.__cause__
    return tuple(kind)


class _Count:
    """Failures of one kind."""

    __slots__ = ("last", "line_at", "pending", "stack_at")

    def __init__(self) -> None:
        self.pending = 0  # Failures since the last line.
        self.last = ""  # The line of the last one.
        self.line_at: float | None = None
        self.stack_at: float | None = None

    def is_due(self, now: float) -> bool:
        return self.line_at is None or now - self.line_at >= LINE_S

    def take(self, now: float) -> str:
        """Return the line to log, and start counting again."""
        more = "" if self.line_at is None else f"; {self.pending} more since the last such line"
        line, self.last = self.last + more, ""
        self.pending, self.line_at = 0, now
        return line


class FailureLog:
    """Logs the first failure of each kind with its stack, and how many there were since.

    A kind is logged once in :data:`LINE_S` at most, and with its stack once in an hour. The first
    line stands for one failure, each later line for as many as it says.

    Example:
        >>> FailureLog().report()
    """

    def __init__(self) -> None:
        self._kinds: dict[_Kind, _Count] = {}
        # Not held while the application's log handlers run. Reentrant: a signal's handler may close
        # the consumer anywhere.
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def add(
        self,
        text: str,
        *arguments: object,
        kind: _Kind = (),
        error: BaseException | None = None,
        stack: str = "",
    ) -> None:
        """Count a failure; log it if it is the first, or if a line of its kind is due.

        Args:
            text: The line, with placeholders; a part of the kind.
            arguments: The values of the placeholders.
            kind: The other parts of the kind.
            error: Its traceback is logged with the first.
            stack: A text that is logged with the first.

        Example:
            >>> FailureLog().add("group %s: no stock", "kitchen")  # doctest: +SKIP
        """
        try:
            line = text % arguments
        except Exception:  # noqa: BLE001 - an application's `repr` failed
            line = text
        now = monotonic()
        with self._lock:
            count = self._count_of((text, *kind), text)
            count.pending += 1
            count.last = line[:_LENGTH]
            if not count.is_due(now):
                return
            line = count.take(now)
            has_stack = count.stack_at is None or now - count.stack_at >= _STACK_S
            if has_stack:
                count.stack_at = now
        _write(f"{line}{stack}" if has_stack else line, error if has_stack else None)

    def report(self, *, at_end: bool = False) -> None:
        """Log how many failures there were since the last lines.

        Args:
            at_end: Do not wait until the lines are due. In a forked child this does nothing.

        Example:
            >>> FailureLog().report(at_end=True)
        """
        if self._pid != os.getpid():
            # A thread of the parent may have held the lock during the fork.
            return
        now = monotonic()
        with self._lock:
            counts = [one for one in [*self._kinds.values()] if one.pending]
            lines = [one.take(now) for one in counts if at_end or one.is_due(now)]
        for line in lines:
            _write(line, None)

    def _count_of(self, kind: _Kind, text: str) -> _Count:
        if kind not in self._kinds and len(self._kinds) >= _KINDS:
            kind = (text,)
        count = self._kinds.get(kind)
        if count is None:
            count = self._kinds[kind] = _Count()
        return count


def _write(line: str, error: BaseException | None) -> None:
    """Log for the application; its log handlers must not end the thread that calls listeners."""
    try:
        _log.error("%s", line, exc_info=error)
    except Exception:  # noqa: BLE001 - it goes where `logging` itself reports its handlers' errors
        if logging.raiseExceptions:
            traceback.print_exc()
