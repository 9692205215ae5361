"""The consumer that calls a function for each message.

Example:
    >>> import threading
    >>> from pyrmq import Producer, PushConsumer
    >>> from pyrmq.testing import cluster
    >>> seen = threading.Event()
    >>> with cluster() as running:
    ...     with Producer(name_server=running.name_server) as producer:
    ...         _ = producer.send("orders", b"two coffees")
    ...     consumer = PushConsumer(name_server=running.name_server, group="kitchen")
    ...     @consumer.listener("orders")
    ...     def handle(body: bytes) -> None:
    ...         print(body)
    ...         seen.set()
    ...     with consumer:
    ...         _ = seen.wait(10)
    b'two coffees'
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from pyrmq._client.options.consumer import ListenerArguments, ListenerOptions
from pyrmq._client.values import milliseconds
from pyrmq.consumer.call import is_coroutine_function
from pyrmq.consumer.listener import Pool
from pyrmq.consumer.listening import ListeningConsumer
from pyrmq.errors import ClosedError, CommitError, ConfigError, RmqError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["PushConsumer"]

_log = logging.getLogger("pyrmq.consumer")

_END_S = 5.0
"""Extra time that a second call of `close` waits for the commits of the first."""

_running: set[PushConsumer] = set()
"""Started consumers: they run until closed, even without another reference."""

_Function = TypeVar("_Function", bound=Callable[..., object])


class _StartStopped(BaseException):
    """A signal has come while `run` was starting."""


class PushConsumer(ListeningConsumer):
    """Calls a function for each message of the group's topics, in its own threads.

    A message is done when its call returns. If the call raises, it is delivered again: after 10 s,
    then 30 s, and so on up to 2 h; after `max_tries` it goes to the topic ``%DLQ%<group>``. What
    was not done when a process dies is delivered again, so listeners must tolerate duplicates.

    Args:
        name_server: ``host:port;host:port``, or a sequence of ``host:port``; without it the
            environment variable ``NAMESRV_ADDR`` is read.
        group: Consumer group. Its members share the queues of each topic.
        threads: Number of concurrent calls.
        order: Which messages stay in order. ``"none"``: none. ``"queue"``: one call at a time for
            each queue, which the broker locks for this consumer (Apache
            ``MessageListenerOrderly``). ``"key"``: one call at a time for each sharding key, keys
            of one queue concurrently. With an order a message that fails is tried again in place.
        consume_batch: Maximum messages per call. Above 1 a listener gets a list of messages, and
            they are done, or delivered again, together.
        time_limit: Seconds that a call may take. If it takes longer, its message is delivered
            again, its stack is logged, and another thread takes over; the call itself cannot be
            stopped.
        max_tries: Redeliveries of a message that fails, before it becomes a dead letter. None: the
            group's setting on the broker (16 if it has none); unlimited with ``order="queue"``.
        suspend_pause: Seconds before a message that failed is tried again, if an order is kept.
        start: Where the group begins in a queue that it has never committed: ``"first"``,
            ``"last"``, or a time.
        instance_name: Distinguishes consumers of one process for brokers; generated when empty.
        ahead_bytes: Memory of what is fetched and not done, for all queues together.
        ahead_messages: Messages that are fetched and not done, for all queues together. None: only
            `ahead_bytes` limits them.
        max_span: How far a queue is handed out beyond its first message that is not done. After a
            crash, at most this many of its messages are delivered again.
        commit_interval: Seconds between commits of what is done; :meth:`close` commits, too.
        rebalance: Seconds between checks of this member's share of the queues; brokers report
            changes of the group at once.
        namespace: Prefix of the names of group and topics.
        unit_name: The unit that this client belongs to.
        address_server: HTTP address of the list of name servers, as for a producer.
        allocate: How the members share the queues of a topic: ``"average"`` (a block of neighbours
            each), ``"circle"`` (one queue in turn), ``"consistent_hash"``, or a strategy of
            :mod:`pyrmq.routing.allocate` or your own, which is called in a thread of the consumer.
            All members of a group must use the same; otherwise queues are read twice or not at all.
        broadcasting: Every member gets every message (Apache ``BROADCASTING``) and keeps its
            offsets in its own file. The group has no retries: messages that fail are dropped.
            The file is named by `instance_name`, ``DEFAULT`` when empty: two members on one machine
            need different names.
        offset_dir: Folder of these files. Default: ``.rocketmq_offsets`` in the home directory.
        hooks: See each message before and after its call, such as those of :mod:`pyrmq.otel`.
        request_fields: Header fields that are added to each request of this consumer and
            signed with it, such as a tenant's name (Apache: what an ``RPCHook`` adds); at most
            4 KiB.
        credentials: The user that requests are sent as, and its secret. Default: the file that the
            environment variable ``PYRMQ_CREDENTIALS`` names; without it requests are not signed.
        tls: Open connections with TLS. Default: what the credentials file or the environment
            variable ``PYRMQ_TLS`` says; without them plain TCP.
        trace: Write Apache's message traces for each call.
        trace_topic: Topic of the traces.
        invisible: Seconds that a message is hidden from other members at first, in a group that
            pops (Apache ``popInvisibleTime``). The time is renewed while the message waits or is
            being handled. After a member has died it is the delay of the next delivery. 1 s to 12
            h.
        client_rebalance: Pull even if the group's mode on its brokers is POP.

    Raises:
        ConfigError: An option is out of its range, or no name server is given.

    Example:
        >>> consumer = PushConsumer(name_server="127.0.0.1:9876", group="kitchen")
        >>> consumer.close()
    """

    def __init__(
        self, *, threads: int = ListenerOptions.threads, **options: Unpack[ListenerArguments]
    ) -> None:
        super().__init__(ListenerOptions.of(threads, options))
        self._pool: Pool | None = None
        self._is_closed = threading.Event()
        self._closing_in: int | None = None
        # Whether Ctrl-C has interrupted the wait for a close, which continues.
        self._is_interrupted = False
        # Whether a signal interrupts the wait of `start` for servers.
        self._may_stop_start = False
        # Not held over the network. Reentrant: a signal's handler may close the consumer anywhere.
        self._lock = threading.RLock()

    def subscribe(
        self,
        topic: str,
        listener: Callable[[Any], object],
        tags: str = "*",
        *,
        sql: str | None = None,
    ) -> None:
        """Set the function that gets a topic's messages.

        Its argument is decoded by the annotation of its parameter: ``bytes``, ``str``, ``dict`` (a
        JSON object), a dataclass or a pydantic model (of a JSON object); without one it gets the
        :class:`pyrmq.ReceivedMessage`. A body that does not fit is a dead letter.

        Args:
            topic: Topic; it must exist when the consumer starts.
            listener: Takes the message. It returns None or ``ConsumeResult.SUCCESS`` when the
                message is done, and ``ConsumeResult.RECONSUME_LATER`` to have it delivered again;
                it may raise :class:`pyrmq.ReconsumeLater` or :class:`pyrmq.DeadLetter`. Any other
                exception means later.
            tags: ``*`` for all, or tags with ``||`` between them.
            sql: A condition on the messages' properties in place of tags, such as ``"a > 5 AND
                color = 'red'"``; brokers evaluate it (``enablePropertyFilter=true``).

        Raises:
            ConfigError: The listener is a coroutine function, does not take one argument, or its
                annotation is none of the above; the topic has a listener; the consumer has started.

        Example:
            >>> consumer.subscribe("orders", print, tags="new || paid")  # doctest: +SKIP
        """
        if is_coroutine_function(listener):
            raise ConfigError(
                f"listener {listener!r} is a coroutine function: use pyrmq.aio.PushConsumer"
            )
        with self._lock:
            self._add(topic, listener, tags, sql)

    def listener(
        self, topic: str, tags: str = "*", *, sql: str | None = None
    ) -> Callable[[_Function], _Function]:
        """Set the function that gets a topic's messages, as a decorator. See :meth:`subscribe`.

        Example:
            >>> @consumer.listener("orders")  # doctest: +SKIP
            ... def handle(order: dict) -> None:
            ...     print(order["id"])
        """

        def name(function: _Function) -> _Function:
            self.subscribe(topic, function, tags, sql=sql)
            return function

        return name

    def start(self) -> None:
        """Join the group and start calling listeners.

        Raises:
            ConfigError: No topic is subscribed, or the consumer has started.
            ClosedError: The consumer is closed, or was closed meanwhile. A consumer that fails to
                start is closed, too.
            TopicNotFound: No broker has a topic.
            FilterError: A condition of ``sql`` is wrong; `position` says where.
            NameServerUnreachable: No name server answered.
            RmqError: A broker refused, or did not answer.

        Example:
            >>> consumer.start()  # doctest: +SKIP
        """
        with self._lock:
            self._note_start()
        try:
            self._begin(self._join())
        except BaseException as error:
            # It may have joined the group already, and must not hold queues that it does not read.
            if not self._abandon() and isinstance(error, RmqError):
                raise ClosedError("the consumer was closed while it started") from error
            raise

    def _join(self) -> Pool:
        """Join the group; its messages wait for the threads."""
        pool = Pool(self._core, self._calls, self._options, self._hooks)
        self._callbacks = self._callback_thread(pool.stacks, pool.consume_directly)
        self._callbacks.start()
        for topic, (text, is_sql) in self._filters.items():
            self._control.subscribe(topic, text, is_sql)
        return pool

    def _begin(self, pool: Pool) -> None:
        with self._lock:
            if self._closed:
                raise ClosedError("the consumer was closed while it started")
            self._pool = pool
            self._may_stop_start = False
            _running.add(self)
            pool.start()

    def _abandon(self) -> bool:
        """End a start that failed. False: a close came before."""
        self._may_stop_start = False
        is_first = self._begin_closing()
        if is_first:
            self._finish_closing()
        elif self._callbacks is not None:
            # The close may have come before the thread was started.
            self._callbacks.end()
        return is_first

    def run(self, *, grace: float = 30.0) -> None:
        """Start, and block until SIGTERM, SIGINT (Ctrl-C) or :meth:`close`; then close.

        Only for the main thread, which gets signals. The former handlers are restored at the end.

        Args:
            grace: Seconds for running calls to finish.

        Raises:
            ConfigError: This is not the main thread.
            RmqError: As :meth:`start`.

        Example:
            >>> consumer.run()  # doctest: +SKIP
        """
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError(
                "`run` handles signals, which only the main thread gets: use `start` here"
            )
        is_stopping = threading.Event()

        def stop(number: int, _frame: FrameType | None) -> None:
            is_first = not is_stopping.is_set()
            is_stopping.set()
            _log.info("group %s: %s, stopping", self._group, signal.Signals(number).name)
            if is_first and self._may_stop_start:
                raise _StartStopped

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._may_stop_start = True
            self.start()
            while not is_stopping.is_set() and not self._closed:
                is_stopping.wait(0.5)
        except _StartStopped:
            # The start has closed the consumer.
            pass
        finally:
            self._may_stop_start = False
            for number, handler in before.items():
                # None: native code installed it, and only that code can restore it.
                if handler is not None:
                    signal.signal(number, handler)
            self.close(timeout=grace)

    def commit(self) -> None:
        """Commit what is done, without waiting for the next interval.

        Raises:
            CommitError: Some brokers refused or did not answer; it lists their queues.

        Example:
            >>> consumer.commit()  # doctest: +SKIP
        """
        self._control.commit()
        self._offset_file.write()

    def close(self, timeout: float = 30.0) -> None:
        """Take nothing more, wait for running calls, commit, and leave the group.

        Messages whose calls have not returned by then are delivered again. A second call waits for
        the first, except in a signal handler in the thread of the first. A call that Ctrl-C
        interrupts is finished in the background.

        Args:
            timeout: Seconds for running calls to finish.

        Raises:
            CommitError: Some positions could not be committed; it lists the queues. The consumer is
                closed nevertheless.

        Example:
            >>> consumer.close()  # doctest: +SKIP
        """
        milliseconds("timeout", timeout)
        pool = self._pool
        if pool is not None and pool.is_mine(threading.current_thread()):
            # A listener: its own call must return before the consumer can end.
            threading.Thread(target=self.close, args=(timeout,), name="pyrmq-close").start()
            return
        if not self._begin_closing():
            # A signal handler would wait for the call that it has interrupted.
            if self._closing_in != threading.get_ident():
                self._is_closed.wait(timeout + _END_S)
                if self._is_interrupted:
                    self._control.shut(True)
            return
        try:
            if self._pool is not None and not self._pool.end(timeout):
                _log.warning(
                    "group %s: closed while listeners ran; their messages will be delivered again",
                    self._group,
                )
        finally:
            self._finish_closing()

    def _begin_closing(self) -> bool:
        """Note that this thread closes the consumer. False: it is closed, or another call does."""
        with self._lock:
            if self._closed:
                return False
            self._closing_in = threading.get_ident()
            self._closed = True
            return True

    def _finish_closing(self) -> None:
        """Commit, leave the group, and let threads end."""
        self._finalizer.detach()
        try:
            self._control.shut(True)
        except BaseException as error:
            self._is_interrupted = not isinstance(error, Exception)
            raise
        finally:
            try:
                self._end_thread()
                if self._pool is not None:
                    self._pool.join(1.0)
            finally:
                # Ctrl-C may have been pressed again.
                _running.discard(self)
                self._is_closed.set()
                self._closing_in = None
                self._unlog()

    def _counts(self) -> tuple[int, int]:
        counts = self._pool.counts if self._pool else None
        return (counts.done, counts.timed_out) if counts else (0, 0)

    def __enter__(self) -> Self:
        """Start, and return the consumer."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the consumer.

        After an exception in the block a failed commit is only logged, so that the exception is
        raised.
        """
        try:
            self.close()
        except CommitError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        state = "closed" if self._closed else "not started" if self._pool is None else "running"
        return f"<PushConsumer group={self._group!r}, topics={sorted(self._calls)}, {state}>"
