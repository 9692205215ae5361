"""Traces of consumed messages in Apache's form (``ConsumeMessageTraceHookImpl``).

::

    SubBefore 01 time 01 region 01 group 01 requestId 01 msgId 01 retryTimes 01 keys 02
    SubAfter 01 requestId 01 msgId 01 cost 01 success 01 keys 01 code 01 time 01 group
        [01 reason] 02

Each message has both; `requestId` ties them. A body that does not fit the listener's annotation has
a `reason`: Apache's reader ignores fields that it does not know.

They wait in a bounded list and are sent together: at most 20 calls or 128,000 bytes in a message to
the trace topic. Traces never delay calls: what does not fit in the list, or cannot be sent, is
dropped and counted. No wait for brokers takes longer than a second or two.
"""

from __future__ import annotations

import logging
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
    from collections.abc import Sequence

    from pyrmq._client.hooks.consume import ConsumeOutcome, Consuming
    from pyrmq._client.options.consumer import ListenerOptions
    from pyrmq.message import ReceivedMessage, SendResult

__all__ = ["Trace"]

_log = logging.getLogger("pyrmq.consumer")

_FIELD, _CONTEXT = "\x01", "\x02"
_REGION = "DefaultRegion"
_LIST = 2048
_CONTEXTS = 20
_BYTES = 128_000
_KEY_BYTES = 16 * 1024
_REASON = 1024
_FLUSH_S, _LAST_FLUSH_S = 1.0, 2.0
"""Time for brokers to accept traces: in the thread that answers brokers, and at the end."""
_SUCCESS, _EXCEPTION, _FAILED = 0, 2, 4
"""Apache's ``ConsumeReturnType``, by number."""


class Trace(ConsumeHook):
    """Writes traces; `flush` sends them.

    Args:
        options: The consumer's.
    """

    def __init__(self, options: ListenerOptions) -> None:
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
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, list[str]]] = []
        self.dropped = 0

    def before_process(self, consuming: Consuming) -> None:
        """Record that a call begins."""
        traced = [
            one for one in consuming.messages if one.properties.get(Property.TRACE_ON) != "false"
        ]
        if not traced:
            return
        request = uuid.uuid4().hex.upper()
        consuming.notes[self] = request, traced
        now = _now_ms()
        rows = [
            (
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
        self._keep(rows, traced)

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
        now = _now_ms()
        reason = [_one_field(str(error))] if isinstance(error, UnfitBody) else []
        rows = [
            (
                "SubAfter",
                request,
                one.message_id,
                cost,
                str(is_done).lower(),
                _keys_of(one),
                code,
                now,
                self._group,
                *reason,
            )
            for one in traced
        ]
        self._keep(rows, traced)

    def flush(self, seconds: float = _FLUSH_S) -> None:
        """Send the waiting traces; return when they have arrived, or after `seconds`."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        texts: list[tuple[list[str], list[str]]] = []
        size = 0
        for text, keys in waiting:
            if not texts or len(texts[-1][0]) == _CONTEXTS or size + len(text) > _BYTES:
                texts.append(([], []))
                size = 0
            texts[-1][0].append(text)
            texts[-1][1].extend(keys)
            size += len(text)
        for parts, keys in texts:
            on_delivery = partial(self._sent, len(parts))
            body = "".join(parts)
            try:
                self._producer.produce(
                    self._topic, body, on_delivery, wait=False, keys=_fitting(keys)
                )
            except RmqError as error:
                on_delivery(error, None)
        self._producer.flush(seconds)

    def close(self) -> None:
        """Send the waiting traces and close, within seconds even if brokers are silent."""
        try:
            self.flush(_LAST_FLUSH_S)
        finally:
            self._producer.close(timeout=0.0)

    def _sent(self, calls: int, error: RmqError | None, _: SendResult | None) -> None:
        if error is not None:
            _log.debug("group %s: traces not sent: %s", self._group, error)
            with self._lock:
                self.dropped += calls

    def _keep(self, rows: Sequence[tuple[object, ...]], traced: list[ReceivedMessage]) -> None:
        text = "".join(_FIELD.join(map(str, row)) + _CONTEXT for row in rows)
        keys = [key for one in traced for key in (one.message_id, *one.keys)]
        with self._lock:
            if len(self._waiting) < _LIST:
                self._waiting.append((text, keys))
            else:
                self.dropped += 1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _one_field(text: str) -> str:
    return text.replace(_FIELD, " ").replace(_CONTEXT, " ")[:_REASON]


def _keys_of(message: ReceivedMessage) -> str:
    return " ".join(message.keys) or "null"


def _fitting(keys: list[str]) -> list[str]:
    """Return the first keys: all properties of a message have 32,767 bytes."""
    found: dict[str, None] = {}
    size = 0
    for key in keys:
        size += len(key) + 1
        if size > _KEY_BYTES:
            break
        found[key] = None
    return [*found]
