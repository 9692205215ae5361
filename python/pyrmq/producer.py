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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Self

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.ending import abandon, end, end_connections
from pyrmq._client.futures import SendFuture, serve_futures
from pyrmq._client.hooks import SendHook, Sending, callback_raised
from pyrmq._client.options import ConfiguredProducer
from pyrmq._client.stats import BrokerState, ProducerStats, stats_of
from pyrmq._client.values import (
    PLAIN,
    MessageProperties,
    Selector,
    all_sent,
    milliseconds,
    placed,
    properties_of,
    queue_of,
    with_properties,
)
from pyrmq._request_reply import RequestMixin, RequestReply
from pyrmq.errors import ClosedError, ForkError, RmqError
from pyrmq.message import Body, Message, QueueId, SendResult, when_of

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

    :meth:`send` waits for the broker, :meth:`send_async` gives a future, :meth:`produce` hands a
    message over and tells a callback: it is the fastest, messages leave together.

    Nothing is connected before the first send. Use it as a context manager, or call :meth:`close`.
    After a fork the child must make its own: the parent's raises :class:`ForkError` there.

    Args:
        name_server: ``host:port;host:port``, or a sequence of ``host:port``; without it the
            environment variable ``NAMESRV_ADDR`` is read.
        group: Producer group.
        instance_name: Distinguishes producers of one process for brokers; made up when empty.
        send_timeout: Seconds for a whole send with its retries.
        retries: Further attempts after the first, on other brokers where there are some. Sends to
            a chosen queue or with a sharding key are not retried elsewhere.
        retry_not_stored_ok: Also try another broker when a message was stored, but not flushed or
            replicated in time. Makes duplicates.
        compress_over_bytes: Bodies of at least this size travel compressed, each in a frame of its
            own; None: never. Batches are not compressed.
        compression: ``"zlib"``, ``"lz4"`` or ``"zstd"``; brokers and consumers before 5.0 read
            zlib only.
        compress_level: Level of zlib and zstd, 0 to 9.
        max_message_bytes: Largest body, and largest batch.
        default_queues: Queues of a topic that the first send creates.
        create_topic_key: Topic whose brokers may create others by a send.
        retry_codes: Response codes after which another broker is tried; Apache's without it.
        namespace: Goes before the names of group and topics as ``namespace%``; results show topics
            without it.
        latency_fault: Leave out brokers that were slow or failed for a while.
        fault_schedule: Rows of (latency from, left out for), in seconds, ascending; Apache's
            without it. A failure counts as 10 s.
        start_detector: Ask brokers that failed whether they are back: until one answers, others
            come first.
        detect_timeout: Seconds for such an answer.
        detect_interval: Seconds between such questions.
        trace: Tell of each stored frame in Apache's trace form, in the background.
        trace_topic: Topic of the traces.
        durability: How safe a message is before its answer: ``"memory"`` (in the broker's page
            cache: it survives the process, not the machine) or ``"local"`` (fsynced). Our broker
            says what it reached in ``SendResult.durability``; of Apache's only ``"memory"`` is
            heard (``waitStoreMsgOK``). None: as the broker is configured.
        vip_channel: Send to the brokers' fast port, which takes no pulls (their port minus 2).
        unit_mode: Say in each send that it belongs to a unit.
        unit_name: The unit that this client belongs to: part of its client id and of what an
            address server is asked.
        address_server: Who tells the name servers, by HTTP, now and every 2 minutes:
            ``http://host:port/path``, or ``host`` or ``host:port`` with Apache's path. Instead of
            ``name_server``.
        max_in_flight: Messages that may be on their way; one more waits. Those count whose callback
            has not run yet, too.
        max_in_flight_bytes: Bytes of bodies and properties that may be on their way; one more
            waits.
        linger: Seconds that a message of :meth:`produce` may wait for company at most. Sends that
            somebody awaits leave at once while nothing of their topic is on its way, and together
            with what came meanwhile otherwise. 0: each message is a frame of its own.
        batch_bytes: A batch of this size leaves; never more than ``max_message_bytes``.
        batch_messages: Messages with which a batch is full and leaves.
        hooks: Told of everything that is sent; see :class:`SendHook`.

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
        self._core = _core.Producer(**options.native(), checks=self._checks)
        self._batcher = _core.Accumulator(self._core, *options.batching(), False, callback_raised)
        self._group = options.group
        self._request_reply = RequestReply(self._core, options.group, self._hooks)
        self._began = time.monotonic()
        self._lock = threading.RLock()
        self._futures: threading.Thread | None = None
        self._closed = False
        self._unlog = log.serve(self)
        self._finalizer = weakref.finalize(
            self, abandon, self._core, self._batcher, self._request_reply.native
        )
        self._produce_by(None if self._hooks else self._batcher)

    def send(
        self,
        topic: str,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        flag: int = 0,
        queue: int | QueueId | Selector | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        It leaves at once while nothing of its topic is on its way, else with what other threads
        send meanwhile (with ``linger=0``, or a ``timeout`` of its own: in a frame of its own).

        Args:
            topic: Topic; created on the first send where the broker allows it.
            body: Bytes, any bytes-like object, or text (sent as UTF-8).
            keys: A key, or several, to find the message by. Spaces separate keys: one with a space
                in it counts as several, as in Java.
            tags: Tag that consumers filter by.
            properties: Further text by name.
            sharding_key: Messages with the same key go to the same queue.
            delay_level: 1 to 18; 0 delivers at once.
            delay: Seconds until it is delivered, by the timer that brokers have from 5.0 on.
            deliver_at: When it is delivered, by that timer; a time without a zone is local.
            flag: A number of your own.
            queue: A queue's number, a :class:`QueueId`, or a function that is given the topic's
                queues and returns one (:class:`pyrmq.routing.MachineRoom` is one); then no other is
                tried.
            timeout: Seconds for the whole send; the producer's ``send_timeout`` without it.

        Returns:
            Where the message is stored.

        Raises:
            MessageError: No broker would take the message.
            ConfigError: The queue is of another topic, or a function returned none.
            TopicNotFound: The topic does not exist, and no broker may create it.
            RouteError: No broker of the topic can be written to.
            NameServerUnreachable: No name server answered.
            SendTimeout: Not confirmed in time; ``may_exist`` says whether it may be stored.
            ConnectionLost: No attempt reached a broker, or (``may_exist``) its answer is missing.
            BrokerError: The broker refused it; subclasses say why.
            QueueFull: ``max_in_flight`` was reached for all of the timeout.
            ClosedError: The producer is closed.
            ForkError: The producer is the parent process's.

        Example:
            >>> producer.send("orders", b"tea", keys="order-43", tags="new")  # doctest: +SKIP
            SendResult(SEND_OK, topic="orders", broker="broker-a", queue_id=2, ...)
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        when = when_of(delay_level, delay, deliver_at)
        sending = None
        if self._hooks:
            sending = self._hooks.before(topic, body, keys, tags, properties, sharding_key, when)
            properties = sending.properties

        def whole() -> SendResult:
            return self._batcher.send_and_wait(
                topic,
                body,
                keys,
                tags,
                properties if properties is None else properties_of(properties),
                sharding_key,
                when,
                flag,
                *placed(self._core, topic, queue, wait, self._options),
            )

        return whole() if sending is None else self._hooks.whole(sending, whole)

    if TYPE_CHECKING:
        # The base class has it: a frame of Python's around it would cost as much again.
        def produce(
            self,
            topic: str,
            body: Body,
            on_delivery: DeliveryCallback | None = None,
            *,
            keys: str | Sequence[str] | None = None,
            tags: str | None = None,
            properties: Mapping[str, str] | None = None,
            sharding_key: str | None = None,
            delay_level: int = 0,
            delay: float | None = None,
            deliver_at: datetime | None = None,
            flag: int = 0,
            queue: int | QueueId | Selector | None = None,
            wait: bool = True,
        ) -> None:
            """Hand a message over; it leaves with others of its topic (or queue), soon.

            Batches are Apache's plain batches: brokers store each message by itself, and consumers
            of every kind read them. A batch leaves when it is full, when its first message is
            ``linger`` old, or with :meth:`flush`. Messages with the same sharding key, or for the
            same queue, keep their order also when something has to be tried again.

            Callbacks run in :meth:`poll`, :meth:`flush` and :meth:`close`, and in a ``produce``
            that waits for room; what they raise is logged. Messages without a callback that fail
            are logged, and counted by :meth:`stats`.

            Args:
                topic: As for :meth:`send`, and so for the arguments that are not told here.
                body: Bytes, any bytes-like object, or text (sent as UTF-8); it is copied.
                on_delivery: Called once with ``(error, None)`` or ``(None, result)``.
                keys: A key, or several, to find the message by.
                tags: Tag that consumers filter by.
                properties: Further text by name.
                sharding_key: Messages with the same key go to the same queue, in order.
                delay_level: 1 to 18; such a message leaves in a frame of its own.
                delay: Seconds until it is delivered; in a frame of its own, too.
                deliver_at: When it is delivered; in a frame of its own, too.
                flag: A number of your own.
                queue: A queue's number, a :class:`QueueId`, or a function that chooses.
                wait: When as much is on its way as may be: wait for room up to ``send_timeout``;
                    False: raise at once.

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
        keys: str | Sequence[str] | None,
        tags: str | None,
        properties: Mapping[str, str] | None,
        sharding_key: str | None,
        when: tuple[int, float | None, datetime | None],
        flag: int,
        queue: int | QueueId | Selector | None,
        wait: bool,  # noqa: FBT001 - called by the native method
    ) -> None:
        """Tell the hooks, and hand over."""
        delay_level, delay, deliver_at = when
        at = when_of(*when)  # what cannot be is no hook's business
        sending = self._hooks.before(topic, body, keys, tags, properties, sharding_key, at)
        try:
            self._batcher.produce(
                topic,
                body,
                self._hooks.callback(sending, on_delivery),
                keys=keys,
                tags=tags,
                properties=sending.properties,
                sharding_key=sharding_key,
                delay_level=delay_level,
                delay=delay,
                deliver_at=deliver_at,
                flag=flag,
                queue=queue,
                wait=wait,
            )
        except BaseException as error:
            self._hooks.after(sending, error, None)
            raise

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
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        flag: int = 0,
        queue: int | QueueId | Selector | None = None,
        timeout: float | None = None,
    ) -> Future[SendResult]:
        """Send a message without waiting: many may be on their way.

        Arguments are those of :meth:`send`. A message leaves at once while nothing of its topic
        is on its way, else with what comes meanwhile (with ``linger=0``, or a ``timeout`` of its
        own: in a frame of its own). Messages with the same sharding key, or for the same queue,
        keep the order of the calls. When ``max_in_flight`` messages are on their way, the call
        waits for room. Callbacks of futures run in one thread of this producer and should be
        short.

        Returns:
            A future of the :class:`SendResult`; its exception is what :meth:`send` would raise.

        Raises:
            MessageError: No broker would take the message.
            QueueFull: ``max_in_flight`` was reached for all of the timeout.
            ClosedError: The producer is closed.
            ForkError: The producer is the parent process's.

        Example:
            >>> futures = [producer.send_async("t", str(n)) for n in range(9)]  # doctest: +SKIP
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        when = when_of(delay_level, delay, deliver_at)
        future = SendFuture()
        future.set_running_or_notify_cancel()
        sending = None
        if self._hooks:
            sending = self._hooks.before(topic, body, keys, tags, properties, sharding_key, when)
            properties = sending.properties
        if self._futures is None:
            self._start_futures()
        try:
            self._batcher.send(
                future,
                topic,
                body,
                keys,
                tags,
                properties_of(properties),
                sharding_key,
                when,
                flag,
                *placed(self._core, topic, queue, wait, self._options),
            )
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
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        queue: int | QueueId | Selector | None = None,
        batch_bytes: int = 256 * 1024,
        inner: bool = False,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send many messages of one topic in few frames, and wait until all are stored.

        Batches are Apache's plain batches: brokers store each message by itself, and consumers of
        every kind read them. They leave while the iterable is still read.

        Args:
            topic: Topic of all.
            messages: Bodies, or :class:`Message` objects whose own extras count (their topic must
                be this one). Those with a sharding key, or for a queue, are sent in order, behind
                what this producer has sent there before.
            keys: For bodies: their key or keys.
            tags: For bodies: their tag.
            properties: For bodies: their properties.
            sharding_key: For bodies: their sharding key.
            queue: A queue for all.
            batch_bytes: Largest frame body, at most ``max_message_bytes``.
            inner: Give each batch an id of its own: a topic of batches (``queue.type=BatchCQ``, on
                brokers from 5.0 on) keeps it as one record, which its consumers unpack.
            timeout: Seconds for each frame, retries included.

        Returns:
            A result for each message, in order.

        Raises:
            BatchSendError: Some messages were not confirmed, or the call ended early (the iterable
                raised, a message cannot be, there was no room) when some had left: ``results`` has
                a result or an exception for each that was read.
            RmqError: As :meth:`send`, when nothing was sent.

        Example:
            >>> producer.send_batch("lines", open("/etc/hosts"))  # doctest: +SKIP
        """
        sending = None
        if self._hooks:
            sending = self._hooks.before(topic, None, keys, tags, properties, kind="batch")
            added = sending.properties.items() - (properties or {}).items()
            messages = with_properties(messages, dict(added))
            properties = sending.properties
        extras = (
            PLAIN
            if not (keys or tags or properties or sharding_key)
            else MessageProperties(keys, tags, properties, sharding_key)
        )
        wait = None if timeout is None else milliseconds("timeout", timeout)

        def whole() -> list[SendResult]:
            if self._closed:
                raise ClosedError("the producer is closed")
            place, left = placed(self._core, topic, queue, wait, self._options)
            return all_sent(
                topic,
                self._batcher.send_batch(topic, messages, extras, place, batch_bytes, left, inner),
            )

        return whole() if sending is None else self._hooks.whole(sending, whole)

    def send_oneway(
        self,
        topic: str,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        queue: int | QueueId | Selector | None = None,
    ) -> None:
        """Send a message that nobody confirms: it may be lost without a word.

        Arguments and errors are those of :meth:`send`; only errors before the message leaves are
        raised.

        Example:
            >>> producer.send_oneway("metrics", b"42")  # doctest: +SKIP
        """
        if not self._hooks:
            extras = MessageProperties(keys, tags, properties, sharding_key)
            self._core.send_oneway(topic, body, extras, queue_of(self._core, topic, queue))
            return
        given = (topic, body, keys, tags, properties, sharding_key)
        sending = self._hooks.before(*given, kind="oneway")
        extras = MessageProperties(keys, tags, sending.properties, sharding_key)

        def leave() -> None:
            self._core.send_oneway(topic, body, extras, queue_of(self._core, topic, queue))

        self._hooks.whole(sending, leave)

    def flush(self, timeout: float = 10.0) -> bool:
        """Send what is gathered, and wait until no message is on its way; runs callbacks.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            False when messages are still on their way.

        Example:
            >>> producer.flush()  # doctest: +SKIP
            True
        """
        return self._batcher.flush(milliseconds("timeout", timeout))

    def stats(self) -> ProducerStats:
        """Count what was sent since this producer was made.

        Example:
            >>> producer.stats().confirmed  # doctest: +SKIP
            1000
        """
        return stats_of(self._core, time.monotonic() - self._began)

    def close(self, timeout: float = 10.0) -> None:
        """Send what is on its way, then end every connection. A second call does nothing.

        Args:
            timeout: Seconds to wait for messages on their way. What is not confirmed then fails:
                its callback and future are told, and a warning says how many there were.

        Example:
            >>> producer.close()  # doctest: +SKIP
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
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
            # The connections are the parent's: there is nothing to end here.
            end_connections(self._core, self._request_reply)
            return
        except BaseException:
            # Ctrl-C: there is no more time for what is on its way, but it ends, and is told.
            end(self._core, self._batcher, self._request_reply, self._futures)
            self._unlog()
            raise
        end(self._core, self._batcher, self._request_reply, self._futures)
        self._unlog()

    def __enter__(self) -> Self:
        """Give the producer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the producer."""
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._core.in_flight()} in flight"
        return f"<Producer group={self._group!r}, {state}>"

    def _start_futures(self) -> None:
        with self._lock:
            if self._futures is None and not self._closed:
                # No daemon: it would be cut off inside native code when the interpreter ends.
                self._futures = threading.Thread(
                    target=serve_futures,
                    args=(self._batcher, self._core),
                    name=f"pyrmq-outcomes-{self._group}",
                    daemon=False,
                )
                self._futures.start()
