"""The producer.

Example:
    >>> from pyrmq import Producer
    >>> from pyrmq.testing import cluster
    >>> with cluster() as running, Producer(name_server=running.name_server) as producer:
    ...     print(producer.send("orders", b"two coffees", keys="order-42").status.name)
    SEND_OK
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self, Unpack

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.ending import abandon, end, end_connections, is_interruption
from pyrmq._client.futures import SendFuture, serve_futures
from pyrmq._client.hooks.send import SendHook, Sending, SendingKind, callback_raised
from pyrmq._client.options.producer import ConfiguredProducer
from pyrmq._client.stats import BrokerState, ProducerStats, stats_of
from pyrmq._client.values import (
    all_sent,
    milliseconds,
    queue_and_time_left,
    queue_of,
    whole,
    with_properties,
)
from pyrmq._request_reply import RequestMixin, RequestReply
from pyrmq.errors import ClosedError, ForkError, RmqError
from pyrmq.message import BatchOptions, Body, Message, MessageOptions, Selector, SendResult

__all__ = [
    "BrokerState",
    "DeliveryCallback",
    "Producer",
    "ProducerStats",
    "Selector",
    "SendHook",
    "Sending",
]

DeliveryCallback = Callable[[RmqError | None, SendResult | None], object]
"""Called with an error and None, or None and the result."""

_log = logging.getLogger("pyrmq.producer")


class Producer(ConfiguredProducer, _core.ProducerBase, RequestMixin):
    """Sends messages. One producer serves any number of threads.

    :meth:`send` waits for the broker. :meth:`send_async` returns a future. :meth:`produce` adds a
    message to a batch and reports the outcome to a callback; it is the fastest.

    The producer connects with the first send. Use it as a context manager, or call :meth:`close`.
    After a fork the child must make its own producer: the parent's raises :class:`ForkError` there.

    Args:
        name_server: ``host:port;host:port``, or a sequence of ``host:port``. Default: the
            environment variable ``NAMESRV_ADDR``.
        group: Producer group.
        instance_name: Distinguishes the producers of one process for brokers. Default: a name is
            generated.
        send_timeout: Seconds for a whole send, retries included.
        retries: Further attempts after the first, on other brokers if there are any. Sends to a
            chosen queue or with a sharding key are not retried elsewhere.
        retry_not_stored_ok: Also try another broker when a message was stored, but not flushed or
            replicated in time. This creates duplicates.
        compress_over_bytes: Bodies of at least this size are compressed, each in a separate frame.
            None: never. Batches are not compressed.
        compression: ``"zlib"``, ``"lz4"`` or ``"zstd"``. Brokers and consumers before 5.0 read only
            zlib.
        compress_level: Level of zlib and zstd, 0 to 9.
        max_message_bytes: Maximum size of a body and of a batch.
        default_queues: Number of queues of a topic that the first send creates.
        create_topic_key: Topic whose brokers may create other topics on a send.
        retry_codes: Response codes after which another broker is tried. Default: Apache's.
        namespace: Prefix of the names of group and topics, as ``namespace%``. Results show topics
            without it.
        latency_fault: Avoid brokers that were slow or failed, for a while.
        fault_schedule: Rows of (latency from, avoided for), in seconds, ascending. Default:
            Apache's. A failure counts as 10 s.
        start_detector: Probe brokers that failed. Until one answers, other brokers come first.
        detect_timeout: Seconds to wait for the answer to a probe.
        detect_interval: Seconds between probes.
        trace: Send a trace of each stored frame in Apache's form, in the background.
        trace_topic: Topic of the traces.
        durability: How durable a message is when its send returns: ``"memory"`` (in the broker's
            page cache: it survives the process, not the machine) or ``"local"`` (fsynced). Our
            broker reports the level it reached in ``SendResult.durability``. Apache's brokers know
            only ``"memory"`` (``waitStoreMsgOK``). None: as the broker is configured.
        vip_channel: Send to the brokers' fast port (their port minus 2), which does not accept
            pulls.
        unit_mode: Mark each send as belonging to a unit.
        unit_name: The unit that this client belongs to. It is part of the client id and of the
            request to an address server.
        address_server: HTTP address of the list of name servers, requested now and every 2 minutes,
            instead of ``name_server``: ``http://host:port/path``, or ``host`` or ``host:port`` with
            Apache's path.
        max_in_flight: Maximum messages in flight; the next send waits. A message whose callback has
            not run yet counts too.
        max_in_flight_bytes: Maximum bytes of bodies and properties in flight; the next send waits.
        linger: Maximum time in seconds that a message of :meth:`produce` waits for others. A send
            that is awaited goes out at once if nothing of its topic is in flight, otherwise
            together with messages sent meanwhile. 0: each message has its own frame.
        batch_bytes: Size at which a batch is sent; at most ``max_message_bytes``.
        batch_messages: Number of messages at which a batch is sent.
        hooks: Called for everything that is sent; see :class:`SendHook`.
        request_fields: Header fields that are added to each request of this producer and
            signed with it, such as a tenant's name (Apache: what an ``RPCHook`` adds); at most
            4 KiB.
        credentials: The user that requests are sent as, and its secret. Default: the file that the
            environment variable ``PYRMQ_CREDENTIALS`` names; without it requests are not signed.
        tls: Open connections with TLS. Default: what the credentials file or the environment
            variable ``PYRMQ_TLS`` says; without them plain TCP.

    Raises:
        ConfigError: An option is out of its range, or no name server is given.

    Example:
        >>> from pyrmq.testing import cluster
        >>> with cluster() as running, Producer(name_server=running.name_server) as producer:
        ...     len(producer.send_batch("numbers", (str(n) for n in range(1000))))
        1000
        >>> stored = []
        >>> with cluster() as running, Producer(name_server=running.name_server) as producer:
        ...     for number in range(1000):
        ...         producer.produce("n", str(number), lambda _, sent: stored.append(sent))
        ...     producer.flush()
        True
        >>> len({(sent.queue_id, sent.queue_offset) for sent in stored})
        1000
    """

    def _open(self) -> None:
        options = self._options
        self._core = _core.Producer(options.native(), self._checks)
        self._batcher = _core.Accumulator(self._core, *options.batching(), False, callback_raised)
        self._group = options.group
        self._request_reply = RequestReply(self._core, options.group, self._hooks)
        self._began = time.monotonic()
        self._lock = threading.RLock()
        self._futures: threading.Thread | None = None
        self._closed = False
        # Whether Ctrl-C has interrupted the wait for a close, which continues.
        self._is_interrupted = False
        self._unlog = log.serve(self)
        self._finalizer = weakref.finalize(
            self, abandon, self._core, self._batcher, self._request_reply.core
        )
        self._produce_by(None if self._hooks else self._batcher)

    def send(
        self,
        topic: str,
        body: Body,
        *,
        timeout: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        It is sent at once if nothing of its topic is in flight, otherwise together with what other
        threads send meanwhile. With ``linger=0`` or a ``timeout`` it has its own frame.

        Args:
            topic: Topic; created on the first send if the broker allows it.
            body: Bytes, any bytes-like object, or text (sent as UTF-8).
            timeout: Seconds for the whole send. Default: the producer's ``send_timeout``.
            options: Other fields of the message, all optional: see
                :class:`pyrmq.message.MessageOptions`.

        Returns:
            Where the message is stored.

        Raises:
            MessageError: No broker would accept the message.
            ConfigError: The queue belongs to another topic, or a function returned none.
            TopicNotFound: The topic does not exist, and no broker may create it.
            RouteError: No broker of the topic accepts writes.
            NameServerUnreachable: No name server answered.
            SendTimeout: Not confirmed in time; ``may_exist`` says whether it may be stored.
            ConnectionLost: No attempt reached a broker, or (``may_exist``) its answer is missing.
            BrokerError: The broker refused it; subclasses say why.
            QueueFull: ``max_in_flight`` was reached for the whole timeout.
            ClosedError: The producer is closed.
            ForkError: The producer belongs to the parent process.

        Example:
            >>> producer.send("orders", b"tea", keys="order-43", tags="new")  # doctest: +SKIP
            SendResult(SEND_OK, topic="orders", broker="broker-a", queue_id=2, ...)
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        sending = self._hooks.before("send", topic, body, options) if self._hooks else None

        def send_now() -> SendResult:
            queue_and_time = self._queue_and_time("send", topic, options, wait)
            return self._batcher.send_and_wait(topic, body, options, queue_and_time)

        return send_now() if sending is None else self._hooks.whole(sending, send_now)

    if TYPE_CHECKING:
        # The native base class has this method (docs/decisions/0005-native-produce.md).
        def produce(
            self,
            topic: str,
            body: Body,
            on_delivery: DeliveryCallback | None = None,
            *,
            wait: bool = True,
            **options: Unpack[MessageOptions],
        ) -> None:
            """Add a message to the batch of its topic or queue; the batch leaves soon.

            Batches are Apache's plain batches: brokers store each message by itself, and all
            consumers can read them. A batch leaves when it is full, when its first message is
            ``linger`` old, or with :meth:`flush`. Messages with the same sharding key or for the
            same queue keep their order, even when a batch is sent again.

            Callbacks run in :meth:`poll`, :meth:`flush` and :meth:`close`, and in a ``produce``
            that waits for room. Exceptions from callbacks are logged. Failed messages without a
            callback are logged and counted by :meth:`stats`.

            Args:
                topic: Topic; created on the first send where the broker allows it.
                body: Bytes, any bytes-like object, or text (sent as UTF-8); it is copied.
                on_delivery: Called once with ``(error, None)`` or ``(None, result)``.
                wait: Whether to wait for room, up to ``send_timeout``, when ``max_in_flight`` is
                    reached. False: raise at once.
                options: The other keyword arguments describe the message, as for :meth:`send`. A
                    delayed message leaves in a frame of its own.

            Raises:
                MessageError: No broker would take the message.
                QueueFull: There was no room.
                ClosedError: The producer is closed.
                ForkError: The producer is the parent process's.

            Example:
                >>> for line in lines:
                ...     producer.produce("orders", line, on_delivery=print)
                >>> producer.flush()
                True
            """
            ...

    def _produce_hooked(
        self,
        topic: str,
        body: Body,
        on_delivery: DeliveryCallback | None,
        wait: bool,  # noqa: FBT001 - called by the native method
        options: MessageOptions,
    ) -> None:
        """Call the hooks, and pass the message on."""
        sending = self._hooks.before("send", topic, body, options)
        callback = self._hooks.callback(sending, on_delivery)
        self._hooks.attempt(sending, self._batcher.produce, topic, body, callback, wait, options)

    def _queue_and_time(
        self, kind: SendingKind, topic: str, options: BatchOptions, wait: int | None
    ) -> tuple[tuple[str, int] | None, int | None]:
        """The queue that the options name, and the milliseconds left for the send."""
        queue = options.get("queue")
        if queue is None:
            return None, wait
        # Before a selector runs and a route is requested; the native call checks all others.
        _core.check_options(kind, options)
        return queue_and_time_left(self._core, topic, queue, wait, self._options.send_timeout)

    def poll(self, timeout: float = 0.0) -> int:
        """Run the callbacks of messages whose outcome is known.

        Args:
            timeout: Seconds to wait for the first.

        Returns:
            How many ran.

        Example:
            >>> producer.poll(0.1)  # doctest: +SKIP
            256
        """
        return self._batcher.poll(milliseconds("timeout", timeout))

    def send_async(
        self,
        topic: str,
        body: Body,
        *,
        timeout: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> Future[SendResult]:
        """Send a message without waiting for its outcome.

        The arguments are those of :meth:`send`. A message is sent at once if nothing of its topic
        is in flight, otherwise together with what is sent meanwhile. With ``linger=0`` or a
        ``timeout`` it has its own frame. Messages with the same sharding key or for the same queue
        keep the order of the calls. When ``max_in_flight`` is reached, the call waits. Callbacks of
        futures run in one thread of this producer and should be short.

        Returns:
            A future of the :class:`SendResult`; its exception is what :meth:`send` would raise.

        Raises:
            MessageError: No broker would accept the message.
            QueueFull: ``max_in_flight`` was reached for the whole timeout.
            ClosedError: The producer is closed.
            ForkError: The producer belongs to the parent process.

        Example:
            >>> futures = [producer.send_async("t", str(n)) for n in range(9)]  # doctest: +SKIP
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        future = SendFuture()
        future.set_running_or_notify_cancel()
        sending = self._hooks.before("send", topic, body, options) if self._hooks else None
        if self._futures is None:
            self._start_futures()
        try:
            queue_and_time = self._queue_and_time("send", topic, options, wait)
            self._batcher.send(future, topic, body, options, queue_and_time)
        except BaseException as error:
            if sending is not None:
                self._hooks.after(sending, error, None)
            raise
        if sending is not None:
            self._hooks.watch(sending, future)
        return future

    def send_batch(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        batch_bytes: int = 256 * 1024,
        inner: bool = False,
        timeout: float | None = None,
        **options: Unpack[BatchOptions],
    ) -> list[SendResult]:
        """Send many messages of one topic in few frames, and wait until all are stored.

        Batches are Apache's plain batches: brokers store each message by itself, and all consumers
        can read them. The first batches are sent while the iterable is still being read.

        Args:
            topic: Topic of all messages.
            messages: Bodies, or :class:`Message` objects, which have their own options (their topic
                must be this one). Messages with a sharding key or for a queue are sent in order,
                after earlier ones of this producer.
            batch_bytes: Maximum frame body, at most ``max_message_bytes``.
            inner: Give each batch its own id. A topic of batches (``queue.type=BatchCQ``, on
                brokers from 5.0 on) stores the batch as one record, which its consumers unpack.
            timeout: Seconds for each frame, retries included.
            options: Other fields of the messages that are given as bodies, and a ``queue`` for all:
                see :class:`pyrmq.message.BatchOptions`.

        Returns:
            A result for each message, in order.

        Raises:
            BatchSendError: Some messages were not confirmed, or the call ended early after some
                were sent (the iterable raised, a message was invalid, ``max_in_flight`` was
                reached). ``results`` has a result or an exception for each message that was read.
            RmqError: As :meth:`send`, if nothing was sent.

        Example:
            >>> producer.send_batch("lines", open("/etc/hosts"))  # doctest: +SKIP
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        whole("batch_bytes", batch_bytes, 1)
        sending = None
        if self._hooks:
            given = options.get("properties") or {}
            sending = self._hooks.before("batch", topic, None, options)
            messages = with_properties(messages, dict(sending.properties.items() - given.items()))

        def send_all() -> list[SendResult]:
            if self._closed:
                raise ClosedError("the producer is closed")
            queue_and_time = self._queue_and_time("batch", topic, options, wait)
            send = self._batcher.send_batch
            results = send(topic, messages, options, queue_and_time, batch_bytes, inner)
            return all_sent(topic, results)

        return send_all() if sending is None else self._hooks.whole(sending, send_all)

    def send_oneway(self, topic: str, body: Body, **options: Unpack[BatchOptions]) -> None:
        """Send a message without confirmation: it may be lost without notice.

        Args:
            topic: Topic.
            body: As for :meth:`send`.
            options: Other fields of the message: see :class:`pyrmq.message.BatchOptions`.

        Raises:
            RmqError: As :meth:`send`, but only errors before the message is sent are raised.

        Example:
            >>> producer.send_oneway("metrics", b"42")  # doctest: +SKIP
        """

        def leave() -> None:
            _core.check_options("oneway", options)
            queue = queue_of(self._core, topic, options.get("queue"))
            self._core.send_oneway(topic, body, options, queue)

        if not self._hooks:
            leave()
            return
        self._hooks.whole(self._hooks.before("oneway", topic, body, options), leave)

    def flush(self, timeout: float = 10.0) -> bool:
        """Send all open batches and wait until no message is in flight; callbacks run meanwhile.

        Args:
            timeout: Maximum wait in seconds.

        Returns:
            False if messages are still in flight.

        Example:
            >>> producer.flush()  # doctest: +SKIP
            True
        """
        return self._batcher.flush(milliseconds("timeout", timeout))

    def stats(self) -> ProducerStats:
        """Return counters since this producer was created.

        Example:
            >>> producer.stats().confirmed  # doctest: +SKIP
            1000
        """
        return stats_of(self._core, time.monotonic() - self._began)

    def close(self, timeout: float = 10.0) -> None:
        """Finish sends in flight, then close every connection. A second call does nothing.

        After Ctrl-C it does not wait for sends in flight. A call that is interrupted again is
        finished in the background; a second call waits for that.

        Args:
            timeout: Seconds to wait for messages in flight. Messages that are not confirmed by then
                fail, and a warning gives their number.

        Example:
            >>> producer.close()  # doctest: +SKIP
        """
        with self._lock:
            is_first = not self._closed
            self._closed = True
        if not is_first:
            if self._is_interrupted:
                self._core.shut()
            return
        self._finalizer.detach()
        try:
            self._batcher.close()
            if not self._batcher.flush(milliseconds("timeout", timeout)):
                _log.warning(
                    "producer of group %s closed with %d messages unconfirmed after %s s",
                    self._group,
                    self._core.in_flight(),
                    timeout,
                )
        except ForkError:
            # The connections belong to the parent: nothing to end here.
            end_connections(self._core, self._request_reply)
            return
        except BaseException:
            # Ctrl-C: do not wait for sends in flight. They fail; callbacks and futures get the
            # error.
            self._end_all()
            self._unlog()
            raise
        self._end_all()
        self._unlog()

    def _end_all(self) -> None:
        try:
            end(self._core, self._batcher, self._request_reply, self._futures)
        except BaseException as error:
            self._is_interrupted = not isinstance(error, Exception)
            raise

    def __enter__(self) -> Self:
        """Return the producer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the producer. After Ctrl-C a route look-up gets 250 ms more."""
        if is_interruption(kind):
            self._core.end_lookups(250)
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._core.in_flight()} in flight"
        return f"<Producer group={self._group!r}, {state}>"

    def _start_futures(self) -> None:
        with self._lock:
            if self._futures is None and not self._closed:
                # Not a daemon: the interpreter's end would stop it inside native code.
                self._futures = threading.Thread(
                    target=serve_futures,
                    args=(self._batcher, self._core),
                    name=f"pyrmq-outcomes-{self._group}",
                    daemon=False,
                )
                self._futures.start()
