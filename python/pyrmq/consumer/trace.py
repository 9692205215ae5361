"""Traces of consumed messages in Apache's form (``ConsumeMessageTraceHookImpl``).

::

    SubBefore 01 time 01 region 01 group 01 requestId 01 msgId 01 retryTimes 01 keys 02
    SubAfter 01 requestId 01 msgId 01 cost 01 success 01 keys 01 code 01 time 01 group
        [01 reason] 02

Each message has both; `requestId` ties them. A body that does not fit the listener's annotation has
a `reason`: Apache's reader ignores fields that it does not know.

A consumer that polls writes both when a poll returns messages, successful and without time, as
Apache's ``DefaultLitePullConsumerImpl.poll``: it does not see what becomes of them.

They wait in a bounded list and are sent together: at most 20 contexts, 128,000 bytes or 16 KiB of
keys in a message to the trace topic. Traces never delay calls: what does not fit in the list, or
cannot be sent, is dropped and counted. No wait for brokers takes longer than a second or two.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

from pyrmq._client.hooks.consume import ConsumeHook
from pyrmq._names import Property
from pyrmq.consumer.call import UnfitBody
from pyrmq.errors import RmqError
from pyrmq.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyrmq._client.hooks.consume import ConsumeOutcome, Consuming
    from pyrmq._client.options.consumer import ConsumerOptions
    from pyrmq.message import ReceivedMessage, SendResult

__all__ = ["Trace"]

_log = logging.getLogger("pyrmq.consumer")

_FIELD, _CONTEXT = "\x01", "\x02"
_REGION = "DefaultRegion"
_LIST = 2048
_LIST_BYTES = 8 * 1024 * 1024
_CONTEXTS = 20
_BYTES = 128_000
_KEY_BYTES = 16 * 1024
_REASON = 1024
_FLUSH_S, _LAST_FLUSH_S = 1.0, 2.0
"""Time for brokers to accept traces: in the thread that answers brokers, and at the end."""
_SUCCESS, _EXCEPTION, _FAILED = 0, 2, 4
"""Apache's ``ConsumeReturnType``, by number."""

_Context = tuple[str, list[str]]
"""What is recorded of one call at one time, and the keys by which it is found."""


class Trace(ConsumeHook):
    """Writes traces; `flush` sends them.

    Args:
        options: The consumer's.
        call_flush: Has another thread call `flush`, before the list of what waits is full.
    """

    def __init__(self, options: ConsumerOptions, call_flush: Callable[[], None]) -> None:
        self._group = options.group
        self._topic = options.trace_topic
        self._producer = Producer(
            name_server=options.name_server,
            address_server=options.address_server,
            unit_name=options.unit_name,
            group=f"_INNER_TRACE_PRODUCER-{options.group}-CONSUME",
            compress_over_bytes=None,
            request_fields=options.request_fields,
            credentials=options.credentials,
            tls=options.tls,
        )
        self._call_flush = call_flush
        self._pid = os.getpid()
        # A signal handler that closes the consumer may run in the thread that holds it.
        self._lock = threading.RLock()
        self._waiting: list[_Context] = []
        self._waiting_bytes = 0
        self._is_flush_due = False
        self.dropped = 0

    def after_receive(self, consuming: Consuming) -> None:
        """Record what a poll returned."""
        traced = _traced(consuming)
        if not traced:
            return
        request = _new_request()
        self._keep(self._begins(request, traced), traced)
        self._keep(self._ends(request, traced, 0, _SUCCESS), traced)

    def before_process(self, consuming: Consuming) -> None:
        """Record that a call begins."""
        traced = _traced(consuming)
        if not traced:
            return
        request = _new_request()
        consuming.notes[self] = request, traced
        self._keep(self._begins(request, traced), traced)

    def after_process(
        self, consuming: Consuming, error: BaseException | None, outcome: ConsumeOutcome
    ) -> None:
        """Record how a call ended."""
        noted = consuming.notes.pop(self, None)
        if noted is None:
            return
        request, traced = noted
        is_done = outcome == "success"
        code = _SUCCESS if is_done else _FAILED if error is None else _EXCEPTION
        cost = round((time.monotonic() - consuming.began) * 1000) // len(consuming.messages)
        reason = [_one_field(str(error))] if isinstance(error, UnfitBody) else []
        self._keep(self._ends(request, traced, cost, code, reason), traced)

    def flush(self, seconds: float = _FLUSH_S) -> None:
        """Send the waiting traces; return when they have arrived, or after `seconds`."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._waiting_bytes = 0
            self._is_flush_due = False
        for contexts in _messages_of(waiting):
            on_delivery = partial(self._sent, len(contexts))
            body = "".join(text for text, _ in contexts)
            keys = dict.fromkeys(key for _, keys in contexts for key in keys)
            try:
                self._producer.produce(
                    self._topic, body, on_delivery, wait=False, keys=_fitting(keys)
                )
            except RmqError as error:
                on_delivery(error, None)
        self._producer.flush(seconds)

    def close(self) -> None:
        """Send the waiting traces and close, within seconds even if brokers are silent.

        A forked child does nothing: the traces are its parent's, one of whose threads may have held
        the lock during the fork.
        """
        if self._pid != os.getpid():
            return
        try:
            self.flush(_LAST_FLUSH_S)
        finally:
            self._producer.close(timeout=0.0)

    def _sent(self, contexts: int, error: RmqError | None, _: SendResult | None) -> None:
        if error is not None:
            _log.debug("group %s: traces not sent: %s", self._group, error)
            with self._lock:
                self.dropped += contexts

    def _begins(self, request: str, traced: list[ReceivedMessage]) -> list[str]:
        now = _now_ms()
        return [
            _row(
                "SubBefore",
                now,
                one.properties.get(Property.MSG_REGION, _REGION),
                self._group,
                request,
                one.message_id,
                one.reconsume_times,
                _keys_of(one),
            )
            for one in traced
        ]

    def _ends(
        self,
        request: str,
        traced: list[ReceivedMessage],
        cost: int,
        code: int,
        reason: Sequence[str] = (),
    ) -> list[str]:
        now = _now_ms()
        is_done = str(code == _SUCCESS).lower()
        return [
            _row(
                "SubAfter",
                request,
                one.message_id,
                cost,
                is_done,
                _keys_of(one),
                code,
                now,
                self._group,
                *reason,
            )
            for one in traced
        ]

    def _keep(self, rows: list[str], traced: list[ReceivedMessage]) -> None:
        keys = [[one.message_id, *one.keys] for one in traced]
        for text, of_text in _split(rows, keys):
            with self._lock:
                has_room = (
                    len(self._waiting) < _LIST and self._waiting_bytes + len(text) <= _LIST_BYTES
                )
                if has_room:
                    self._waiting.append((text, of_text))
                    self._waiting_bytes += len(text)
                else:
                    self.dropped += 1
                is_half_full = (
                    len(self._waiting) > _LIST // 2 or self._waiting_bytes > _LIST_BYTES // 2
                )
                must_call = is_half_full and not self._is_flush_due
                self._is_flush_due = is_half_full
            if must_call:
                self._call_flush()


def _traced(consuming: Consuming) -> list[ReceivedMessage]:
    return [one for one in consuming.messages if one.properties.get(Property.TRACE_ON) != "false"]


def _new_request() -> str:
    return uuid.uuid4().hex.upper()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _row(*fields: object) -> str:
    return _FIELD.join(map(str, fields)) + _CONTEXT


def _one_field(text: str) -> str:
    return text.replace(_FIELD, " ").replace(_CONTEXT, " ")[:_REASON]


def _keys_of(message: ReceivedMessage) -> str:
    return " ".join(message.keys) or "null"


def _split(rows: list[str], keys: list[list[str]]) -> Iterator[_Context]:
    """Split what is recorded of many messages so that each part fits in a message."""
    first = 0
    text_bytes = key_bytes = 0
    for place, (row, of_row) in enumerate(zip(rows, keys, strict=True)):
        more = _size_of(of_row)
        text_bytes += len(row)
        key_bytes += more
        if place > first and (text_bytes > _BYTES or key_bytes > _KEY_BYTES):
            yield _joined(rows[first:place], keys[first:place])
            first, text_bytes, key_bytes = place, len(row), more
    yield _joined(rows[first:], keys[first:])


def _joined(rows: list[str], keys: list[list[str]]) -> _Context:
    return "".join(rows), [key for of_row in keys for key in of_row]


def _messages_of(waiting: list[_Context]) -> list[list[_Context]]:
    """Group what waits into messages."""
    messages: list[list[_Context]] = []
    size = 0
    keys: set[str] = set()
    for text, more in waiting:
        size += len(text)
        keys.update(more)
        if (
            not messages
            or len(messages[-1]) == _CONTEXTS
            or size > _BYTES
            or _size_of(keys) > _KEY_BYTES
        ):
            messages.append([])
            size, keys = len(text), {*more}
        messages[-1].append((text, more))
    return messages


def _size_of(keys: Iterable[str]) -> int:
    """Bytes of keys in a message, with a separator after each."""
    return sum(len(key.encode()) + 1 for key in keys)


def _fitting(keys: Iterable[str]) -> list[str]:
    """Return the first keys: all properties of a message have 32,767 bytes."""
    found: list[str] = []
    size = 0
    for key in keys:
        size += _size_of([key])
        if size > _KEY_BYTES:
            break
        found.append(key)
    return found
