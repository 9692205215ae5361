"""The thread that calls application code for the native consumer, which never calls Python.

It calls the application's allocation strategy, answers operators' requests to a running consumer
(its stacks, the handling of one message), writes the offsets of a broadcasting member, and looks
for new topics of a pattern.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING

from pyrmq.consumer.call import log_error
from pyrmq.errors import ClosedError, ForkError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyrmq._client.options.consumer import Allocator
    from pyrmq._core import ConsumerControl
    from pyrmq.message import ReceivedMessage

__all__ = ["CallbackThread"]

_log = logging.getLogger("pyrmq.consumer")

_WAIT_MS = 3_600_000
"""Time of one wait for callbacks if nothing is due earlier. Any other work ends it."""


class CallbackThread:
    """Runs the native consumer's callbacks.

    Args:
        control: The native consumer.
        group: Its group, for the log.
        allocator: The application's strategy.
        stacks: Returns the stacks of the listeners' threads or tasks.
        consume: Calls the listener of a message; returns ``success``, ``later`` or ``raised``, and
            what it raised.
    """

    def __init__(
        self,
        control: ConsumerControl,
        group: str,
        *,
        allocator: Allocator | None = None,
        stacks: Callable[[], str] | None = None,
        consume: Callable[[ReceivedMessage], tuple[str, str | None]] | None = None,
    ) -> None:
        self._control = control
        self._group = group
        self._allocator = allocator
        self._stacks = stacks
        self._consume = consume
        self._repeated: list[tuple[float, Callable[[], None]]] = []
        self._due: list[float] = []
        self._is_ended = threading.Event()
        name = f"pyrmq-callbacks-{group}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def repeat(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function at an interval; what it raises is logged."""
        # In this order: the thread may read the lists between the two.
        self._due.append(monotonic() + seconds)
        self._repeated.append((seconds, function))
        self._control.wake_callbacks()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function of `repeat` now, in the thread, and from then on at its interval."""
        for place, (_, repeated) in enumerate(self._repeated):
            if repeated == function:
                self._due[place] = 0.0
        self._control.wake_callbacks()

    def start(self) -> None:
        """Start the thread."""
        self._control.serve_callbacks()
        self._thread.start()

    def end(self) -> None:
        """End the thread. Close the native consumer before or soon after."""
        self._is_ended.set()
        self._control.wake_callbacks()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(2.0)

    def _run(self) -> None:
        while not self._is_ended.is_set():
            try:
                callback = self._control.next_callback(self._wait_ms())
                if callback is not None:
                    self._answer(*callback)
            except (ClosedError, ForkError):
                return
            except BaseException as error:  # noqa: BLE001 - sys.exit must not end this thread
                log_error("group %s: a callback failed", self._group, error=error)
            self._call_due()

    def _wait_ms(self) -> int:
        left = [at - monotonic() for at in self._due]
        return max(1, min(_WAIT_MS, *(round(each * 1000) for each in left))) if left else _WAIT_MS

    def _call_due(self) -> None:
        for place, (seconds, function) in enumerate(self._repeated):
            if monotonic() < self._due[place] or self._is_ended.is_set():
                continue
            self._due[place] = monotonic() + seconds
            try:
                function()
            except BaseException as error:  # noqa: BLE001 - the next turn tries again
                name = function.__qualname__
                log_error("group %s: %s failed", self._group, name, error=error)

    def _answer(
        self,
        number: int,
        kind: str,
        places: Sequence[tuple[str, str, int]],
        members: Sequence[str],
        message: ReceivedMessage | None,
    ) -> None:
        if kind == "allocate":
            self._allocate(number, [QueueId(*place) for place in places], members)
        elif kind == "stacks":
            self._control.answer_text(number, self._stacks() if self._stacks else "")
        elif message is not None and self._consume is not None:
            # A call may take long, and others must be answered meanwhile.
            name = f"pyrmq-direct-{self._group}"
            arguments = (number, message)
            threading.Thread(
                target=self._consume_one, args=arguments, name=name, daemon=True
            ).start()
        else:
            self._control.answer_text(number, "")

    def _consume_one(self, number: int, message: ReceivedMessage) -> None:
        assert self._consume is not None
        result, remark = self._consume(message)
        self._control.answer_consumed(number, result, remark)

    def _allocate(self, number: int, queues: list[QueueId], members: Sequence[str]) -> None:
        if self._allocator is None:
            self._control.answer_text(number, "")
            return
        try:
            client_id = self._control.client_id()
            mine = self._allocator.allocate(client_id, queues, list(members))
            known = {queue: place for place, queue in enumerate(queues)}
            topic = queues[0].topic if queues else ""
            unknown = [queue for queue in mine if queue.topic == topic and queue not in known]
            if unknown:
                text = "group %s: the strategy of `allocate` gave queues that do not exist: %s"
                _log.error(text, self._group, unknown)
            found = {known[queue] for queue in mine if queue in known}
        except BaseException:
            # Not a list of queues: the native consumer fails at once, and tries again.
            self._control.answer_text(number, "")
            raise
        self._control.answer_indexes(number, sorted(found))
