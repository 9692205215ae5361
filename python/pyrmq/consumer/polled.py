"""Common part of both forms of the pulling consumer, and the offsets of their queues."""

from __future__ import annotations

import weakref
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.consumer_stats import ConsumerStats, consumer_stats
from pyrmq._client.ending import leave
from pyrmq._client.hooks.consume import ConsumeHooks
from pyrmq._client.identities import note_member
from pyrmq._client.options.consumer import ConfiguredConsumer
from pyrmq.consumer.callbacks import CallbackThread
from pyrmq.consumer.membership import OffsetFile, callbacks_of
from pyrmq.consumer.subscriptions import Subscriptions
from pyrmq.errors import ConfigError, RmqError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyrmq.message import ReceivedMessage

__all__ = ["WHICH", "PolledConsumer", "QueueOffsets", "offsets_of"]

WHICH = ("first", "last", "committed")
"""The requested offsets, in the order of the fields of :class:`QueueOffsets`."""


class QueueOffsets(NamedTuple):
    """A queue's offsets at one moment.

    Attributes:
        first: The offset of the oldest stored message.
        last: The offset that the next message gets.
        committed: The group's next message; None if it has not committed one.

    Example:
        >>> QueueOffsets(first=0, last=42, committed=40).lag
        2
    """

    first: int
    last: int
    committed: int | None

    @property
    def lag(self) -> int:
        """Messages that the group has not committed; all stored ones if it never has."""
        begin = self.first if self.committed is None else max(self.first, self.committed)
        return max(0, self.last - begin)


def offsets_of(
    queues: Sequence[QueueId], columns: Sequence[Sequence[int]]
) -> dict[QueueId, QueueOffsets]:
    """Combine answers: a column for each of :data:`WHICH`."""
    return {
        queue: QueueOffsets(first, last, None if committed < 0 else committed)
        for queue, first, last, committed in zip(queues, *columns, strict=True)
    }


class PolledConsumer(ConfiguredConsumer):
    """The methods of both forms of the pulling consumer that send no request."""

    def _open(self) -> None:
        options = self._options
        self._core = _core.PullConsumer(options.native())
        self._control = self._core.control()
        self._offset_file = OffsetFile(self._control, options)
        self._subscriptions = Subscriptions(self._control, options, self._core.queues_of)
        self._hooks = ConsumeHooks(options.hooks, options.group, options.namespace)
        self._hooks.client_id = self._control.client_id()
        self._callbacks, self._trace = callbacks_of(
            self._control, self._offset_file, options, self._hooks
        )
        note_member(options.group, self._control.client_id(), self)
        self._group = options.group
        self._is_watched = False
        self._closed = False
        self._unlog = log.serve(self)
        self._finalizer = weakref.finalize(self, leave, self._control)

    def assignment(self) -> list[QueueId]:
        """List the queues that this consumer has now.

        Example:
            >>> consumer.assignment()  # doctest: +SKIP
            [QueueId(topic='orders', broker='broker-a', queue_id=0)]
        """
        return [QueueId(*place) for place, _ in self._core.positions()]

    def position(self, queue: QueueId) -> int:
        """Return the offset of the next message that a queue returns.

        Raises:
            ConfigError: The queue is not assigned to this consumer.

        Example:
            >>> consumer.position(queue)  # doctest: +SKIP
            42
        """
        for place, position in self._core.positions():
            if place == queue:
                return position
        raise ConfigError(f"{queue} is not assigned to this consumer")

    def pause(self, queues: Iterable[QueueId]) -> None:
        """Return and fetch nothing of these queues until they are resumed; they stay assigned.

        A queue that goes to another member and comes back is not paused any more, as with Kafka and
        Apache's ``DefaultLitePullConsumer``; pause it again in `on_assigned`.

        Raises:
            ConfigError: A queue is not assigned to this consumer; none is paused then.

        Example:
            >>> consumer.pause(consumer.assignment())  # doctest: +SKIP
        """
        self._control.pause([*queues], True)

    def resume(self, queues: Iterable[QueueId]) -> None:
        """Resume paused queues.

        Raises:
            ConfigError: A queue is not assigned to this consumer; none is resumed then.

        Example:
            >>> consumer.resume(consumer.paused())  # doctest: +SKIP
        """
        self._control.pause([*queues], False)

    def stats(self) -> ConsumerStats:
        """Return rates, what waits in memory, and the state of each queue.

        Example:
            >>> consumer.stats().lag  # doctest: +SKIP
            336776
        """
        return consumer_stats(self._control)

    def paused(self) -> list[QueueId]:
        """List the assigned queues that are paused.

        Example:
            >>> consumer.paused()  # doctest: +SKIP
            []
        """
        return [QueueId(*place) for place in self._control.paused()]

    def _call_hooks(self, messages: Sequence[ReceivedMessage], began: float) -> None:
        """Call the hooks for what a poll returns.

        Raises:
            KeyboardInterrupt, SystemExit: A hook raised it. The next poll returns the messages.
        """
        try:
            self._hooks.received(messages, began)
        except BaseException:
            firsts: dict[QueueId, int] = {}
            for message in messages:
                queue = QueueId(message.topic, message.broker, message.queue_id)
                firsts.setdefault(queue, message.queue_offset)
            for queue, offset in firsts.items():
                # It may have gone to another member meanwhile. Never forward: another thread may
                # have taken it back further, for the messages of its own poll.
                with suppress(RmqError):
                    self._core.seek_back(queue, offset)
            raise

    def _end_parts(self) -> None:
        """End the thread, write the file of a broadcasting member, and send the last traces."""
        # Each part ends, also if Ctrl-C ends the wait for one before it.
        with ExitStack() as stack:
            stack.callback(self._hooks.failures.report, at_end=True)
            if self._trace is not None:
                stack.callback(self._trace.close)
            if self._options.auto_commit is not None:
                stack.callback(self._offset_file.write_at_end)
            if self._callbacks is not None:
                stack.callback(self._callbacks.end)

    def _watch(self) -> None:
        """Start the thread that maintains the subscriptions."""
        if not self._is_watched:
            self._is_watched = True
            thread = self._callbacks or CallbackThread(self._control, self._group)
            self._subscriptions.serve(thread)
            if self._callbacks is None:
                thread.start()
            self._callbacks = thread
