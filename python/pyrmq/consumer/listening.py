"""Common part of both forms of the consumer with listeners."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.consumer_stats import ConsumerStats, consumer_stats
from pyrmq._client.ending import leave
from pyrmq._client.failure_log import LINE_S
from pyrmq._client.hooks.consume import ConsumeHooks
from pyrmq._client.identities import note_member
from pyrmq.consumer.call import Call
from pyrmq.consumer.callbacks import CallbackThread
from pyrmq.consumer.decode import decoder_of
from pyrmq.consumer.membership import OffsetFile, filter_of, start_trace
from pyrmq.errors import ClosedError, ConfigError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq._client.options.consumer import ListenerOptions
    from pyrmq.consumer.trace import Trace
    from pyrmq.message import ReceivedMessage

__all__ = ["ListeningConsumer"]


class ListeningConsumer(ABC):
    """The listeners by topic, the native consumer, and the methods that send no request."""

    def __init__(self, options: ListenerOptions) -> None:
        self._options = options
        self._group = options.group
        self._core = _core.ListeningConsumer(options.native())
        self._control = self._core.control()
        self._offset_file = OffsetFile(self._control, options)
        self._hooks = ConsumeHooks(options.hooks, options.group, options.namespace)
        self._hooks.client_id = self._control.client_id()
        self._failures = self._hooks.failures
        note_member(options.group, self._control.client_id(), self)
        self._callbacks: CallbackThread | None = None
        self._trace: Trace | None = None
        self._calls: dict[str, Call] = {}
        self._filters: dict[str, tuple[str, bool]] = {}
        self._is_started = False
        self._closed = False
        self._unlog = log.serve(self)
        self._finalizer = weakref.finalize(self, leave, self._control)

    def assignment(self) -> list[QueueId]:
        """List the queues that this consumer has now, those of the retry topic included.

        Example:
            >>> consumer.assignment()  # doctest: +SKIP
            [QueueId(topic='orders', broker='broker-a', queue_id=0), ...]
        """
        return [QueueId(*place) for place, _, _ in self._core.queues()]

    def stats(self) -> ConsumerStats:
        """Return counters since the start, rates, and the state of each queue.

        Example:
            >>> consumer.stats().done  # doctest: +SKIP
            336776
        """
        queues = self._core.queues()
        done, timed_out = self._counts()
        later, dead, unreadable = self._core.failures()
        return consumer_stats(
            self._control,
            done=done,
            later=later,
            dead=dead,
            unfit=sum(call.unfit for call in self._calls.values()),
            unreadable=unreadable,
            timed_out=timed_out,
            in_flight=sum(in_flight for _, _, in_flight in queues),
            queues=len(queues),
        )

    @abstractmethod
    def _counts(self) -> tuple[int, int]:
        """How many messages are done, and how many calls took too long."""

    def _add(
        self, topic: str, listener: Callable[[Any], object], tags: str, sql: str | None
    ) -> None:
        """Note the listener of a topic."""
        if self._is_started:
            raise ConfigError("the consumer has started: subscribe before `start`")
        if topic in self._calls:
            raise ConfigError(
                f"topic `{topic}` has a listener already: {self._calls[topic].function!r}"
            )
        decode = decoder_of(listener, in_batches=self._options.consume_batch > 1)
        self._filters[topic] = filter_of(tags, sql)
        self._calls[topic] = Call(listener, decode)

    def _note_start(self) -> None:
        """Note that this call starts the consumer."""
        if self._closed:
            raise ClosedError("the consumer is closed")
        if self._is_started:
            raise ConfigError("the consumer has started")
        if not self._calls:
            raise ConfigError(
                "no topic is subscribed: name a listener with `subscribe` or `listener`"
            )
        self._is_started = True

    def _callback_thread(
        self,
        stacks: Callable[[], str],
        consume: Callable[[ReceivedMessage], tuple[str, str | None]],
    ) -> CallbackThread:
        """Create the thread that answers brokers and writes offsets, traces and failures."""
        thread = CallbackThread(
            self._control,
            self._group,
            allocator=self._options.allocator(),
            stacks=stacks,
            consume=consume,
        )
        self._offset_file.write_each(self._options.auto_commit, thread)
        thread.repeat(LINE_S, self._failures.report)
        self._trace = start_trace(self._options, self._hooks, thread)
        return thread

    def _end_thread(self) -> None:
        if self._callbacks is not None:
            self._callbacks.end()
            self._offset_file.write_at_end()
        if self._trace is not None:
            self._trace.close()
        self._failures.report(at_end=True)
