"""Requests, replies, and brokers' checks of transactions.

One thread receives what brokers push to a producer: replies to its requests, and checks of
transactions. It starts with the first request, or with a transactional producer. It never waits for
a broker, so a silent broker does not delay the checks of another.
"""

import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from pyrmq import _core
from pyrmq._client.futures import GuardedFuture
from pyrmq._client.hooks.send import Hooks, SendingKind
from pyrmq._client.log import log_raised
from pyrmq._client.values import queue_of
from pyrmq._names import Property
from pyrmq._request_reply.waiting import Waiting, left_of, reply_address
from pyrmq.codes import RequestCode
from pyrmq.errors import ClosedError, RequestTimeout, RmqError
from pyrmq.message import Body, ReceivedMessage, ReplyOptions, RequestOptions, SendResult

__all__ = ["RequestReply"]

_log = logging.getLogger("pyrmq.producer")
_CHECK_MS = 100
_LAST_ENDS_S = 5.0
"""Longer than a broker may take to confirm an end."""


class RequestReply:
    """Sends requests and replies, and answers brokers' checks, for one producer."""

    def __init__(self, core: _core.Producer, group: str, hooks: Hooks) -> None:
        self.core = _core.RequestReply(core)
        self.hooks = hooks
        hooks.client_id = self.core.client_id
        self._core_producer = core
        self._group = group
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()
        self._met: set[str] = set()
        self._waiting: dict[str, Waiting] = {}
        self._check: weakref.WeakMethod[Callable[[_core.Request], None]] | None = None
        # The callbacks of ends that no broker has confirmed yet.
        self._outcomes = _core.CompletionList(descriptor=False)
        self._ends: dict[int, Callable[[BaseException | None], None]] = {}
        self._tokens = itertools.count()

    def serve_checks(self, check: Callable[[_core.Request], None]) -> None:
        """Answer brokers' checks of transactions with this method of a producer.

        The thread has only a weak reference to it, so the producer can be collected.
        """
        self._check = weakref.WeakMethod(check)
        self.start()

    def end(
        self,
        end: dict[str, object],
        timeout_ms: int,
        then: Callable[[BaseException | None], None],
    ) -> None:
        """Send the end of a transaction to the broker that checked it; do not wait for the answer.

        Only a check may call this: `then` runs in the same thread, with the error or None.
        """
        token = next(self._tokens)
        self.core.end(end, timeout_ms, to=(self._outcomes, token))
        self._ends[token] = then

    def heartbeat(self, topic: str, timeout_ms: int) -> None:
        """Send one heartbeat to a topic's brokers, so that they can check with this producer."""
        if topic not in self._met:
            self.core.heartbeat(topic, timeout_ms)
            self._met.add(topic)

    def store(
        self,
        kind: SendingKind,
        topic: str,
        body: Body,
        options: RequestOptions,
        system: list[tuple[str, str]],
        timeout_ms: int,
    ) -> SendResult:
        """Send a request or a half message; the timeout includes queue choice and heartbeat."""
        until = time.monotonic() + timeout_ms / 1000
        place = queue_of(self._core_producer, topic, options.get("queue"), timeout_ms)
        # A broker that does not answer gets a later heartbeat, or fails the send too.
        with suppress(RmqError):
            self.heartbeat(topic, left_of(until))
        return self.core.send(topic, body, options, system, kind, (place, left_of(until)))

    def request(
        self,
        topic: str,
        body: Body,
        options: RequestOptions,
        timeout_ms: int,
    ) -> tuple[str, Future[ReceivedMessage]]:
        """Send a request; return its correlation id and the future of its reply."""
        self.start()

        def send() -> SendResult:
            return self.store("request", topic, body, options, system, timeout_ms)

        correlation, future, system = self.expect(timeout_ms)
        try:
            stored = self.hooked("request", topic, body, options, send)
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
        options: ReplyOptions,
        send: Callable[[], SendResult],
    ) -> SendResult:
        """Send, and call the hooks before and after."""
        if not self.hooks:
            _core.check_options(kind, options)
            return send()
        return self.hooks.whole(self.hooks.before(kind, topic, body, options), send)

    def expect(self, timeout_ms: int) -> tuple[str, Future[ReceivedMessage], list[tuple[str, str]]]:
        """Expect a reply; return correlation id, future, and the properties of the request."""
        # Imported here: it takes 5 of the 100 ms that `import pyrmq` may take.
        from uuid import uuid4

        correlation = str(uuid4())
        future: Future[ReceivedMessage] = GuardedFuture()
        future.set_running_or_notify_cancel()
        self._waiting[correlation] = Waiting(timeout_ms, future)
        system = [
            (Property.CORRELATION_ID, correlation),
            (Property.REPLY_TO_CLIENT, self.core.client_id),
            (Property.TTL, str(timeout_ms)),
        ]
        return correlation, future, system

    def stored(self, correlation: str, result: SendResult) -> None:
        """Record that the request is stored."""
        waiting = self._waiting.get(correlation)
        if waiting is not None:
            waiting.result = result

    def forget(self, correlation: str) -> RequestTimeout | None:
        """Stop waiting; return the error for the caller, or None if the reply has arrived."""
        waiting = self._waiting.pop(correlation, None)
        return None if waiting is None else waiting.late()

    def give_up(self, correlation: str) -> None:
        """Fail the future, unless the reply arrived at the last moment."""
        waiting = self._waiting.pop(correlation, None)
        if waiting is not None:
            waiting.future.set_exception(waiting.late())

    def reply(
        self,
        request: ReceivedMessage,
        body: Body,
        options: ReplyOptions,
        timeout_ms: int | None,
    ) -> SendResult:
        """Send the reply to a request back to its sender."""
        topic, system, queue = reply_address(request)
        return self.hooked(
            "reply",
            topic,
            body,
            options,
            lambda: self.core.send(topic, body, options, system, "reply", (queue, timeout_ms)),
        )

    def close(self, *, wait: bool = True) -> None:
        """End the thread and wait for it; requests without a reply fail."""
        if os.getpid() != self._process:
            # It belongs to the parent, whose threads may have held the lock at the fork.
            return
        with self._lock:
            self._closed = True
            thread = self._thread
        self.core.close()
        here = threading.current_thread()
        if wait and thread is not None and thread.is_alive() and thread is not here:
            thread.join()
        for correlation in list(self._waiting):
            waiting = self._waiting.pop(correlation, None)
            if waiting is not None:
                closed = ClosedError("the producer was closed before the reply arrived")
                waiting.future.set_exception(closed)

    def start(self) -> None:
        """Start the thread if it does not run; in a forked child the next native call raises."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name=f"pyrmq-requests-{self._group}", daemon=False
                )
                self._thread.start()

    def _run(self) -> None:
        queue = self.core.broker_requests
        main = threading.main_thread()
        while not queue.closed and main.is_alive():
            for request in queue.take(64, self._pause()):
                try:
                    self._answer(request)
                except BaseException as error:  # noqa: BLE001 - one request must not end the others
                    log_raised(_log, error, "a broker's request was not answered: %r", request)
                self._take_ends(0)
            self._take_ends(0)
            try:
                self._expire()
            except BaseException as error:  # noqa: BLE001 - of a future that the application has completed
                log_raised(_log, error, "a request that timed out could not fail its future")
        until = time.monotonic() + _LAST_ENDS_S
        while self._ends and time.monotonic() < until:
            self._take_ends(_CHECK_MS)

    def _take_ends(self, timeout_ms: int) -> None:
        """Pass on the outcomes of ends, after waiting up to `timeout_ms` for the first."""
        if not self._ends:
            return
        for token, _, error in self._outcomes.wait(timeout_ms) or ():
            try:
                self._ends.pop(token)(error)
            except BaseException as raised:  # noqa: BLE001 - one outcome must not end the others
                log_raised(
                    _log, raised, "the outcome of a transaction's end could not be passed on"
                )

    def _answer(self, request: _core.Request) -> None:
        if request.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            self._take_reply(request)
        elif request.code == RequestCode.CHECK_TRANSACTION_STATE:
            check = None if self._check is None else self._check()
            if check is None:
                _log.warning(
                    "a broker checks a transaction, but this is not a transactional producer"
                )
            else:
                check(request)

    def _take_reply(self, request: _core.Request) -> None:
        fields = request.fields
        reply = self.core.reply_of(
            fields.get("topic", ""),
            int(fields.get("queueId", "0")),
            int(fields.get("flag", "0")),
            int(fields.get("sysFlag", "0")),
            int(fields.get("bornTimestamp", "0")),
            fields.get("bornHost", ""),
            int(fields.get("storeTimestamp", "0")),
            fields.get("storeHost", ""),
            fields.get("properties", ""),
            request.body or b"",
        )
        request.reply(0)
        correlation = reply.properties.get(Property.CORRELATION_ID, "")
        waiting = self._waiting.pop(correlation, None)
        if waiting is None:
            _log.info("a reply came too late, or has no request here: %s", correlation)
        else:
            waiting.future.set_result(reply)

    def _pause(self) -> int:
        """Milliseconds until the next request times out, or the next check for the end."""
        until = min((waiting.until for waiting in list(self._waiting.values())), default=None)
        return _CHECK_MS if until is None else min(_CHECK_MS, left_of(until))

    def _expire(self) -> None:
        now = time.monotonic()
        late = [key for key, waiting in list(self._waiting.items()) if now >= waiting.until]
        for key in late:
            waiting = self._waiting.pop(key, None)
            if waiting is not None:
                waiting.future.set_exception(waiting.late())
