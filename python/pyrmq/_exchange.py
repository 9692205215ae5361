"""What a producer does beside plain sends: it asks, and is asked.

One thread takes what brokers ask of a producer: replies to its requests, and how a transaction
ended. It starts with the first request, or with a transactional producer.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from pyrmq import _core
from pyrmq._client.hooks import Hooks, SendingKind
from pyrmq._client.values import Extras, Selector, handle_of, milliseconds, queue_of
from pyrmq.errors import ClosedError, ConfigError, RequestTimeout
from pyrmq.message import Body, QueueId, ReceivedMessage, SendResult

__all__ = ["Asking", "Exchange", "way_back"]

_log = logging.getLogger("pyrmq.producer")
_CHECK_TRANSACTION_STATE = 39
_PUSH_REPLY_MESSAGE_TO_CLIENT = 326
_LOOK_AROUND_MS = 100


class Exchange:
    """A producer's questions and answers."""

    def __init__(self, core: _core.Producer, group: str, hooks: Hooks) -> None:
        self.native = _core.Exchange(core)
        self.hooks = hooks
        self._core = core
        self._group = group
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._met: set[str] = set()
        self._waiting: dict[str, tuple[float, Future[ReceivedMessage]]] = {}
        self._check: weakref.WeakMethod[Callable[[_core.Request], None]] | None = None

    def serve_checks(self, check: Callable[[_core.Request], None]) -> None:
        """Answer the brokers' questions about transactions by this method of a producer.

        The thread holds it weakly: a producer that nobody else holds can go, and ends the thread.
        """
        self._check = weakref.WeakMethod(check)
        self.start()

    def meet(self, topic: str) -> None:
        """Make this producer known to a topic's brokers, once: only then can they ask it."""
        if topic not in self._met:
            self.native.meet(topic)
            self._met.add(topic)

    def request(
        self,
        topic: str,
        body: Body,
        extras: Extras,
        queue: Callable[[], tuple[str, int] | None],
        timeout_ms: int,
    ) -> Future[ReceivedMessage]:
        """Send a request; the future is completed with the reply, or when its time is over."""
        self.start()

        def send(extras: Extras) -> SendResult:
            self.meet(topic)
            return self.native.send(topic, body, extras, system, "request", queue(), timeout_ms)

        correlation, future, system = self.expect(timeout_ms)
        try:
            self.hooked("request", topic, body, extras, send)
        except BaseException:
            self.forget(correlation)
            raise
        return future

    def hooked(
        self,
        kind: SendingKind,
        topic: str,
        body: Body,
        extras: Extras,
        send: Callable[[Extras], SendResult],
    ) -> SendResult:
        """Send between the hooks."""
        if not self.hooks:
            return send(extras)
        sending = extras.before(self.hooks, kind, topic, body)
        extras.properties = sending.properties
        return self.hooks.whole(sending, send, extras)

    def expect(self, timeout_ms: int) -> tuple[str, Future[ReceivedMessage], list[tuple[str, str]]]:
        """Await a reply: its correlation id, its future, and the properties of its request."""
        # Imported late: it takes 5 ms of the 100 that `import pyrmq` may take.
        from uuid import uuid4

        correlation = str(uuid4())
        future: Future[ReceivedMessage] = Future()
        future.set_running_or_notify_cancel()
        self._waiting[correlation] = (time.monotonic() + timeout_ms / 1000, future)
        system = [
            ("CORRELATION_ID", correlation),
            ("REPLY_TO_CLIENT", self.native.client_id),
            ("TTL", str(timeout_ms)),
        ]
        return correlation, future, system

    def forget(self, correlation: str) -> None:
        """The request was not sent."""
        self._waiting.pop(correlation, None)

    def reply(
        self, request: ReceivedMessage, body: Body, extras: Extras, timeout_ms: int | None
    ) -> SendResult:
        """Send the reply to a request back to who asked."""
        topic, system, queue = way_back(request)
        return self.hooked(
            "reply",
            topic,
            body,
            extras,
            lambda extras: self.native.send(
                topic, body, extras, system, "reply", queue, timeout_ms
            ),
        )

    def close(self, *, wait: bool = True) -> None:
        """End the thread, and wait for its end; who waits for a reply is told."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self.native.close()
        here = threading.current_thread()
        if wait and thread is not None and thread.is_alive() and thread is not here:
            thread.join()
        for correlation in list(self._waiting):
            waiting = self._waiting.pop(correlation, None)
            if waiting is not None:
                closed = ClosedError("the producer was closed before the reply came")
                waiting[1].set_exception(closed)

    def start(self) -> None:
        """Start the thread, if it does not run."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name=f"pyrmq-asked-{self._group}", daemon=False
                )
                self._thread.start()

    def _run(self) -> None:
        asked = self.native.asked
        main = threading.main_thread()
        while not asked.closed and main.is_alive():
            for question in asked.take(64, _LOOK_AROUND_MS):
                try:
                    self._answer(question)
                except Exception:  # noqa: BLE001 - one question must not end the others
                    _log.exception("a broker's question was not answered: %r", question)
            self._expire()

    def _answer(self, question: _core.Request) -> None:
        if question.code == _PUSH_REPLY_MESSAGE_TO_CLIENT:
            self._take_reply(question)
        elif question.code == _CHECK_TRANSACTION_STATE:
            check = None if self._check is None else self._check()
            if check is None:
                _log.warning("asked about a transaction, but this is no transactional producer")
            else:
                check(question)

    def _take_reply(self, question: _core.Request) -> None:
        fields = question.fields
        reply = self.native.reply_of(
            fields.get("topic", ""),
            int(fields.get("queueId", "0")),
            int(fields.get("flag", "0")),
            int(fields.get("sysFlag", "0")),
            int(fields.get("bornTimestamp", "0")),
            fields.get("bornHost", ""),
            int(fields.get("storeTimestamp", "0")),
            fields.get("storeHost", ""),
            fields.get("properties", ""),
            question.body or b"",
        )
        question.reply(0)
        correlation = reply.properties.get("CORRELATION_ID", "")
        waiting = self._waiting.pop(correlation, None)
        if waiting is None:
            _log.info("a reply came too late, or to nobody here: %s", correlation)
        else:
            waiting[1].set_result(reply)

    def _expire(self) -> None:
        now = time.monotonic()
        late = [key for key, (deadline, _) in list(self._waiting.items()) if now >= deadline]
        for key in late:
            waiting = self._waiting.pop(key, None)
            if waiting is not None:
                waiting[1].set_exception(RequestTimeout("no reply came in time", address=""))


def way_back(
    request: ReceivedMessage,
) -> tuple[str, list[tuple[str, str]], tuple[str, int] | None]:
    """Topic, properties and queue of the reply to a request."""
    properties = request.properties
    missing = [
        name
        for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER")
        if not properties.get(name)
    ]
    if missing:
        raise ConfigError(f"{request!r} is no request: it has no {' and no '.join(missing)}")
    system = [("MSG_TYPE", "reply")]
    system += [
        (name, properties[name])
        for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")
        if properties.get(name)
    ]
    # The requester is connected to the broker that its request came by.
    queue = (request.broker, 0) if request.broker else None
    return f"{properties['CLUSTER']}_REPLY_TOPIC", system, queue


class Asking:
    """Requests and replies, as a producer has them."""

    _core: _core.Producer
    _exchange: Exchange

    def request(
        self,
        topic: str,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue: int | QueueId | Selector | None = None,
        timeout: float = 3.0,
    ) -> ReceivedMessage:
        """Send a message that a consumer answers by :meth:`reply`, and wait for the reply.

        Arguments are those of ``send``.

        Raises:
            RequestTimeout: No reply came in time; the request may have been read.
            RmqError: The request was not stored, as ``send``.

        Example:
            >>> producer.request("prices", b"tea").body  # doctest: +SKIP
            b'2.80'
        """
        began = time.monotonic()
        future = self.request_async(
            topic,
            body,
            keys=keys,
            tags=tags,
            properties=properties,
            queue=queue,
            timeout=timeout,
        )
        try:
            # The future times out by itself; this is for a thread that could not run.
            return future.result(max(0.0, began + timeout + 1.0 - time.monotonic()))
        except FutureTimeout as error:
            if isinstance(error, RequestTimeout):
                raise
            raise RequestTimeout("no reply came in time") from error

    def request_async(
        self,
        topic: str,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue: int | QueueId | Selector | None = None,
        timeout: float = 3.0,
    ) -> Future[ReceivedMessage]:
        """Send a request; the call waits until it is stored, its future is the reply.

        Arguments and errors are those of :meth:`request`. ``asyncio.wrap_future`` makes it
        awaitable.

        Example:
            >>> producer.request_async("prices", b"tea").result().body  # doctest: +SKIP
            b'2.80'
        """
        return self._exchange.request(
            topic,
            body,
            Extras(keys, tags, properties),
            lambda: queue_of(self._core, topic, queue),
            max(1, milliseconds("timeout", timeout)),
        )

    def reply(
        self,
        request: ReceivedMessage,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Answer a request that a consumer has read; its broker hands the answer on.

        Raises:
            ConfigError: The message is no request.
            BrokerError: The requester is not connected to the broker any more.
            RmqError: As ``send``.

        Example:
            >>> producer.reply(message, b"2.80")  # doctest: +SKIP
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        return self._exchange.reply(request, body, Extras(keys, tags, properties), wait)

    def recall(self, topic: str, handle: str) -> str:
        """Take a message back that a timer has not delivered yet.

        Args:
            topic: Its topic.
            handle: ``recall_handle`` of its result.

        Returns:
            The id of the message that takes it back, which is its own.

        Raises:
            ConfigError: This is no such handle.
            RouteError: The broker that has it is away.
            BrokerError: The broker refused: recall is off there (PermissionDenied; see
                ``recallMessageEnable``), the time has come, or it has no timer.

        Example:
            >>> later = producer.send("orders", b"tea", delay=60)  # doctest: +SKIP
            >>> producer.recall("orders", later.recall_handle)  # doctest: +SKIP
        """
        broker, message_id = handle_of(topic, handle)
        return self._exchange.native.recall(topic, broker, message_id, handle)
