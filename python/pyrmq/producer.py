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
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Self, cast

from pyrmq import _core
from pyrmq._client import PLAIN, Extras, milliseconds, name_servers, queue_of
from pyrmq.errors import BatchSendError, ClosedError, ForkError, RmqError
from pyrmq.message import Body, Message, QueueId, SendResult

__all__ = ["Producer", "ProducerStats"]

_log = logging.getLogger("pyrmq.producer")


class ProducerStats(NamedTuple):
    """Counters of a producer since it was made.

    Attributes:
        confirmed: Messages that a broker has stored.
        failed: Messages that were given up.
        retries: Attempts beyond the first, in frames.
        frames: Frames sent; a batch is one.
        in_flight: Messages on their way now.
    """

    confirmed: int
    failed: int
    retries: int
    frames: int
    in_flight: int


class Producer:
    """Sends messages. One producer serves any number of threads.

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
        compress_over_bytes: Bodies of at least this size travel compressed (zlib); None: never.
            Batches are not compressed.
        compress_level: Level of zlib, 0 to 9.
        max_message_bytes: Largest body, and largest batch.
        default_queues: Queues of a topic that the first send creates.
        create_topic_key: Topic whose brokers may create others by a send.
        latency_fault: Leave out brokers that were slow or failed for a while.
        max_in_flight: Messages that may be on their way; one more waits.
        max_in_flight_bytes: Bytes of bodies that may be on their way; one more waits.

    Raises:
        ConfigError: An option is out of its range, or no name server is given.

    Example:
        >>> from pyrmq.testing import cluster
        >>> with cluster() as running, Producer(name_server=running.name_server) as producer:
        ...     len(producer.send_batch("numbers", (str(n) for n in range(1000))))
        1000
    """

    def __init__(
        self,
        *,
        name_server: str | Sequence[str] | None = None,
        group: str = "pyrmq_producer",
        instance_name: str = "",
        send_timeout: float = 3.0,
        retries: int = 2,
        retry_not_stored_ok: bool = False,
        compress_over_bytes: int | None = 4096,
        compress_level: int = 5,
        max_message_bytes: int = 4 * 1024 * 1024,
        default_queues: int = 4,
        create_topic_key: str = "TBW102",
        latency_fault: bool = False,
        max_in_flight: int = 32_768,
        max_in_flight_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._core = _core.Producer(
            name_servers(name_server),
            group,
            instance_name=instance_name,
            send_timeout_ms=milliseconds("send_timeout", send_timeout),
            retries=retries,
            retry_not_stored_ok=retry_not_stored_ok,
            compress_over_bytes=compress_over_bytes,
            compress_level=compress_level,
            max_message_bytes=max_message_bytes,
            default_queues=default_queues,
            create_topic_key=create_topic_key,
            latency_fault=latency_fault,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
        )
        self._group = group
        self._lock = threading.Lock()
        self._futures: _Futures | None = None
        self._closed = False
        self._finalizer = weakref.finalize(self, _core.Producer.shut, self._core)

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
        flag: int = 0,
        queue: int | QueueId | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            topic: Topic; created on the first send where the broker allows it.
            body: Bytes, any bytes-like object, or text (sent as UTF-8).
            keys: A key, or several, to find the message by.
            tags: Tag that consumers filter by.
            properties: Further text by name.
            sharding_key: Messages with the same key go to the same queue.
            delay_level: 1 to 18; 0 delivers at once.
            flag: A number of your own.
            queue: A queue's number, or a :class:`QueueId`; then no other queue is tried.
            timeout: Seconds for the whole send; the producer's ``send_timeout`` without it.

        Returns:
            Where the message is stored.

        Raises:
            MessageError: No broker would take the message.
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
        extras = (
            PLAIN
            if not (keys or tags or properties or sharding_key or delay_level or flag)
            else Extras(keys, tags, properties, sharding_key, delay_level, flag)
        )
        wait = None if timeout is None else milliseconds("timeout", timeout)
        return self._core.send(topic, body, extras, queue_of(topic, queue), wait)

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
        flag: int = 0,
        queue: int | QueueId | None = None,
        timeout: float | None = None,
    ) -> Future[SendResult]:
        """Send a message without waiting: many may be on their way.

        Arguments are those of :meth:`send`. Messages of one thread for one queue go out in the
        order of the calls. When ``max_in_flight`` messages are on their way, the call waits for
        room. Callbacks of futures run in one thread of this producer and should be short.

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
        extras = (
            PLAIN
            if not (keys or tags or properties or sharding_key or delay_level or flag)
            else Extras(keys, tags, properties, sharding_key, delay_level, flag)
        )
        wait = None if timeout is None else milliseconds("timeout", timeout)
        futures = self._futures or self._start_futures()
        token, future = futures.new()
        try:
            self._core.send_to(
                futures.outcomes, token, True, topic, body, extras, queue_of(topic, queue), wait
            )
        except BaseException:
            futures.forget(token)
            raise
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
        queue: int | QueueId | None = None,
        batch_bytes: int = 256 * 1024,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send many messages of one topic in few frames, and wait until all are stored.

        Batches are Apache's plain batches: brokers store each message by itself, and consumers of
        every kind read them. They leave while the iterable is still read.

        Args:
            topic: Topic of all.
            messages: Bodies, or :class:`Message` objects whose own extras count (their topic must
                be this one). Those with a sharding key are grouped by queue.
            keys: For bodies: their key or keys.
            tags: For bodies: their tag.
            properties: For bodies: their properties.
            sharding_key: For bodies: their sharding key.
            queue: A queue for all.
            batch_bytes: Largest frame body, at most ``max_message_bytes``.
            timeout: Seconds for each frame, retries included.

        Returns:
            A result for each message, in order.

        Raises:
            BatchSendError: Some messages were not confirmed; ``results`` has a result or an
                exception for each.
            RmqError: As :meth:`send`, when nothing was sent.

        Example:
            >>> producer.send_batch("lines", open("/etc/hosts"))  # doctest: +SKIP
        """
        extras = (
            PLAIN
            if not (keys or tags or properties or sharding_key)
            else Extras(keys, tags, properties, sharding_key)
        )
        wait = None if timeout is None else milliseconds("timeout", timeout)
        place = queue_of(topic, queue)
        results: list[SendResult | RmqError] = self._core.send_batch(
            topic, messages, extras, place, batch_bytes, wait
        )
        failed = [result for result in results if isinstance(result, RmqError)]
        if failed:
            raise BatchSendError(topic, results) from failed[0]
        return cast("list[SendResult]", results)

    def send_oneway(
        self,
        topic: str,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        queue: int | QueueId | None = None,
    ) -> None:
        """Send a message that nobody confirms: it may be lost without a word.

        Arguments and errors are those of :meth:`send`; only errors before the message leaves are
        raised.

        Example:
            >>> producer.send_oneway("metrics", b"42")  # doctest: +SKIP
        """
        extras = Extras(keys, tags, properties, sharding_key)
        self._core.send_oneway(topic, body, extras, queue_of(topic, queue))

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until no message is on its way.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            False when messages are still on their way.

        Example:
            >>> producer.flush()  # doctest: +SKIP
            True
        """
        return self._core.flush(milliseconds("timeout", timeout))

    def stats(self) -> ProducerStats:
        """Count what was sent since this producer was made.

        Example:
            >>> producer.stats().confirmed  # doctest: +SKIP
            1000
        """
        return ProducerStats(*self._core.stats(), self._core.in_flight())

    def close(self, timeout: float = 10.0) -> None:
        """Send what is on its way, then end every connection. A second call does nothing.

        Args:
            timeout: Seconds to wait for messages on their way. What is not confirmed then fails:
                its future raises, and a warning tells how many there were.

        Example:
            >>> producer.close()  # doctest: +SKIP
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            futures, self._futures = self._futures, None
        self._core.close()
        self._finalizer.detach()
        try:
            if not self._core.flush(milliseconds("timeout", timeout)):
                waiting = self._core.in_flight()
                _log.warning(
                    "producer of group %s closed with %d messages unconfirmed after %s s",
                    self._group,
                    waiting,
                    timeout,
                )
        except ForkError:
            # The connections are the parent's: there is nothing to end here.
            return
        finally:
            self._core.shut()
            if futures is not None:
                futures.close()

    def __enter__(self) -> Self:
        """Give the producer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the producer."""
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._core.in_flight()} in flight"
        return f"<Producer group={self._group!r}, {state}>"

    def _start_futures(self) -> "_Futures":
        with self._lock:
            if self._closed:
                raise ClosedError("the producer is closed")
            if self._futures is None:
                self._futures = _Futures(self._group)
            return self._futures


class _Futures:
    """Turns outcomes into results of futures, in a thread that starts with the first of them.

    The thread is no daemon: a daemon would be cut off inside native code when the interpreter
    ends. It ends by itself soon after the main thread does.
    """

    LOOK_AROUND_MS = 200

    def __init__(self, group: str) -> None:
        self.outcomes = _core.Outcomes(descriptor=False)
        self._waiting: dict[int, Future[SendResult]] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name=f"pyrmq-outcomes-{group}", daemon=False
        )
        self._thread.start()

    def new(self) -> tuple[int, Future[SendResult]]:
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            token = self._next
            self._next += 1
            self._waiting[token] = future
        return token, future

    def forget(self, token: int) -> None:
        self._waiting.pop(token, None)

    def close(self) -> None:
        self.outcomes.close()
        # In a forked child the thread does not exist, in a callback it is this one.
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        for future in self._waiting.values():
            future.set_exception(ClosedError("the producer was closed before the outcome came"))
        self._waiting.clear()

    def _run(self) -> None:
        main = threading.main_thread()
        while (batch := self.outcomes.wait(self.LOOK_AROUND_MS)) is not None:
            for token, result, error in batch:
                future = self._waiting.pop(token, None)
                if future is None:
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            if not batch and not self._waiting and not main.is_alive():
                return
