"""What a producer does beside plain sends: it asks, and is asked.

One thread takes what brokers ask of a producer: replies to its requests, and how a transaction
ended. It starts with the first request, or with a transactional producer.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress

from pyrmq import _core
from pyrmq._client.hooks import Hooks, SendingKind
from pyrmq._client.values import MessageProperties, Selector, handle_of, milliseconds, queue_of
from pyrmq.errors import ClosedError, ConfigError, RequestTimeout, RmqError
from pyrmq.message import Body, QueueId, ReceivedMessage, SendResult

__all__ = ["RequestMixin", "RequestReply", "left_of", "reply_address"]

_log = logging.getLogger("pyrmq.producer")
_CHECK_TRANSACTION_STATE = 39
_PUSH_REPLY_MESSAGE_TO_CLIENT = 326
_LOOK_AROUND_MS = 100


class RequestReply:
    """A producer's questions and answers."""

    def __init__(self, core: _core.Producer, group: str, hooks: Hooks) -> None:
        self.native = _core.RequestReply(core)
        self.hooks = hooks
        hooks.client_id = self.native.client_id
        self._core = core
        self._group = group
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()
        self._met: set[str] = set()
        self._waiting: dict[str, _Waiting] = {}
        self._check: weakref.WeakMethod[Callable[[_core.Request], None]] | None = None

    def serve_checks(self, check: Callable[[_core.Request], None]) -> None:
        """Answer the brokers' questions about transactions by this method of a producer.

        The thread holds it weakly: a producer that nobody else holds can go, and ends the thread.
        """
        self._check = weakref.WeakMethod(check)
        self.start()

    def heartbeat(self, topic: str, timeout_ms: int) -> None:
        """Make this producer known to a topic's brokers, once: only then can they ask it."""
        if topic not in self._met:
            self.native.heartbeat(topic, timeout_ms)
            self._met.add(topic)

    def store(
        self,
        kind: SendingKind,
        topic: str,
        body: Body,
        extras: MessageProperties,
        system: list[tuple[str, str]],
        queue: int | QueueId | Selector | None,
        timeout_ms: int,
    ) -> SendResult:
        """Send what brokers ask about or answer: choice, greeting and send share one time."""
        until = time.monotonic() + timeout_ms / 1000
        place = queue_of(self._core, topic, queue, timeout_ms)
        # A broker that cannot be greeted is met by a later heartbeat, or fails the send, too.
        with suppress(RmqError):
            self.heartbeat(topic, left_of(until))
        return self.native.send(topic, body, extras, system, kind, place, left_of(until))

    def request(
        self,
        topic: str,
        body: Body,
        extras: MessageProperties,
        queue: int | QueueId | Selector | None,
        timeout_ms: int,
    ) -> tuple[str, Future[ReceivedMessage]]:
        """Send a request; its correlation id, and the future of the reply."""
        self.start()

        def send(extras: MessageProperties) -> SendResult:
            return self.store("request", topic, body, extras, system, queue, timeout_ms)

        correlation, future, system = self.expect(timeout_ms)
        try:
            stored = self.hooked("request", topic, body, extras, send)
        except BaseException:
            self.forget(correlation)
            raise
        self.stored(correlation, stored)
        return correlation, future

    def hooked(
        self,
        kind: SendingKind,
        topic: str,
        body: Body,
        extras: MessageProperties,
        send: Callable[[MessageProperties], SendResult],
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
        self._waiting[correlation] = _Waiting(timeout_ms, future)
        system = [
            ("CORRELATION_ID", correlation),
            ("REPLY_TO_CLIENT", self.native.client_id),
            ("TTL", str(timeout_ms)),
        ]
        return correlation, future, system

    def stored(self, correlation: str, result: SendResult) -> None:
        """The request is stored: from now on only its reply is missing."""
        waiting = self._waiting.get(correlation)
        if waiting is not None:
            waiting.result = result

    def forget(self, correlation: str) -> RequestTimeout | None:
        """Wait no longer; the error for who waited in vain, None when the reply is there."""
        waiting = self._waiting.pop(correlation, None)
        return None if waiting is None else waiting.late()

    def give_up(self, correlation: str) -> None:
        """Its time is over: the future fails, unless the reply came at the last moment."""
        waiting = self._waiting.pop(correlation, None)
        if waiting is not None:
            waiting.future.set_exception(waiting.late())

    def reply(
        self,
        request: ReceivedMessage,
        body: Body,
        extras: MessageProperties,
        timeout_ms: int | None,
    ) -> SendResult:
        """Send the reply to a request back to who asked."""
        topic, system, queue = reply_address(request)
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
        if os.getpid() != self._process:
            # It is the parent's to end; its threads may have held the lock at the fork.
            return
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
                waiting.future.set_exception(closed)

    def start(self) -> None:
        """Start the thread, if it does not run; a forked child is refused by what it asks next."""
        if os.getpid() != self._process:
            return
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
            for question in asked.take(64, self._pause()):
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
            waiting.future.set_result(reply)

    def _pause(self) -> int:
        """Milliseconds until the next request is late, or somebody may have ended all this."""
        until = min((waiting.until for waiting in list(self._waiting.values())), default=None)
        return _LOOK_AROUND_MS if until is None else min(_LOOK_AROUND_MS, left_of(until))

    def _expire(self) -> None:
        now = time.monotonic()
        late = [key for key, waiting in list(self._waiting.items()) if now >= waiting.until]
        for key in late:
            waiting = self._waiting.pop(key, None)
            if waiting is not None:
                waiting.future.set_exception(waiting.late())


class _Waiting:
    """A request whose reply has not come."""

    def __init__(self, timeout_ms: int, future: Future[ReceivedMessage]) -> None:
        self.timeout_ms = timeout_ms
        self.until = time.monotonic() + timeout_ms / 1000
        self.future = future
        self.result: SendResult | None = None

    def late(self) -> RequestTimeout:
        """The error for who waited in vain."""
        stored = self.result
        if stored is None:
            return RequestTimeout(
                f"no reply came in {self.timeout_ms} ms; whether the request is stored is unknown",
                may_exist=True,
            )
        return RequestTimeout(
            f"no reply came in {self.timeout_ms} ms to message {stored.message_id} for topic "
            f"`{stored.topic}`; the request is stored in queue {stored.queue_id} of broker "
            f"{stored.broker}, and may have been read",
            topic=stored.topic,
            broker=stored.broker,
            queue_id=stored.queue_id,
            message_id=stored.message_id,
            may_exist=True,
            attempts=stored.failed_attempts,
        )


def left_of(until: float) -> int:
    """Whole milliseconds until then, at least one."""
    return max(1, round((until - time.monotonic()) * 1000))


def reply_address(
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


class RequestMixin:
    """Requests and replies, as a producer has them."""

    _core: _core.Producer
    _request_reply: RequestReply

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
        wait = max(1, milliseconds("timeout", timeout))
        until = time.monotonic() + wait / 1000
        extras = MessageProperties(keys, tags, properties)
        correlation, future = self._request_reply.request(topic, body, extras, queue, wait)
        try:
            return future.result(max(0.0, until - time.monotonic()))
        except TimeoutError as error:
            late = self._request_reply.forget(correlation)
            if late is not None and not isinstance(error, RequestTimeout):
                raise late from None
        # It was completed at the last moment, by the reply or by its time.
        return future.result()

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
        wait = max(1, milliseconds("timeout", timeout))
        extras = MessageProperties(keys, tags, properties)
        return self._request_reply.request(topic, body, extras, queue, wait)[1]

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
        return self._request_reply.reply(
            request, body, MessageProperties(keys, tags, properties), wait
        )

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
        return self._request_reply.native.recall(topic, broker, message_id, handle)
