"""Traces of messages, as producers and consumers wrote them (Apache ``TraceDataEncoder``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.message import ReceivedMessage

__all__ = ["MessageTrace", "traces_in", "traces_of"]

_FIELD, _CONTEXT = "\x01", "\x02"
_STATES = {"0": "success", "1": "timeout", "2": "exception", "3": "null", "4": "failed"}
"""Apache's ``ConsumeReturnType``, by number."""


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """A step in a message's life, as recorded by its client.

    Attributes:
        kind: ``Pub`` (sent), ``SubBefore`` (handed to a consumer), ``SubAfter`` (the consumer
            ended), ``EndTransaction``, or ``Recall``.
        time_ms: When it was written, ms since 1970; 0 if the client did not record it.
        group: Producer or consumer group.
        client: Address of the client's broker (``Pub``) or client; empty if unknown.
        cost_ms: How long it took; None if it was not measured.
        result: ``success``, ``failed``, ``exception``, ``timeout``, the state of a transaction, or
            empty.
        retries: Deliveries before this one (``SubBefore``).
        request: Links a ``SubAfter`` to its ``SubBefore``; empty for other kinds.
    """

    kind: str
    time_ms: int
    group: str
    client: str = ""
    cost_ms: int | None = None
    result: str = ""
    retries: int = 0
    request: str = ""


def traces_in(text: str, message_id: str) -> Iterator[MessageTrace]:
    r"""Read the body of a trace message; contexts that cannot be read are skipped.

    Args:
        text: The body.
        message_id: Only traces of this message.

    Example:
        >>> line = "SubAfter|R1|A1|12|true|null|0|1700000000000|kitchen"
        >>> next(traces_in(line.replace("|", "\x01") + "\x02", "A1")).cost_ms
        12
    """
    for context in text.split(_CONTEXT):
        words = context.split(_FIELD)
        read = _READERS.get(words[0])
        at = 2 if words[0] == "SubAfter" else 5
        # A batch names the ids of all its messages.
        if read is None or len(words) <= at or message_id not in words[at].split(","):
            continue
        try:
            yield read(words)
        except (IndexError, ValueError):
            continue


def traces_of(found: list[ReceivedMessage], message_id: str) -> list[MessageTrace]:
    """Return the steps of a message in trace messages, oldest first."""
    steps = {
        step
        for message in found
        for step in traces_in(bytes(message.body).decode("utf-8", "replace"), message_id)
    }
    # In one millisecond, a delivery comes before its end.
    return sorted(steps, key=lambda step: (step.time_ms, _ORDER.get(step.kind, 0)))


_ORDER = {"Pub": 0, "EndTransaction": 1, "SubBefore": 2, "SubAfter": 3, "Recall": 4}


def _pub(words: list[str]) -> MessageTrace:
    # Before 4.5 there was no offset id between the type and the success.
    success = words[12] if len(words) == 13 else words[13]
    return MessageTrace(
        "Pub",
        int(words[1]),
        words[3],
        client=words[8],
        cost_ms=int(words[10]),
        result=_result(success),
    )


def _before(words: list[str]) -> MessageTrace:
    return MessageTrace(
        "SubBefore", int(words[1]), words[3], retries=int(words[6]), request=words[4]
    )


def _after(words: list[str]) -> MessageTrace:
    state = _result(words[4])
    if len(words) > 6 and state == "failed":
        state = _STATES.get(words[6], state)
    return MessageTrace(
        "SubAfter",
        int(words[7]) if len(words) > 7 else 0,
        words[8] if len(words) > 8 else "",
        cost_ms=int(words[3]),
        result=state,
        request=words[1],
    )


def _end(words: list[str]) -> MessageTrace:
    return MessageTrace(
        "EndTransaction", int(words[1]), words[3], client=words[8], result=words[11]
    )


def _recall(words: list[str]) -> MessageTrace:
    return MessageTrace("Recall", int(words[1]), words[3], result=_result(words[6]))


def _result(text: str) -> str:
    return "success" if text == "true" else "failed"


_READERS = {
    "Pub": _pub,
    "SubBefore": _before,
    "SubAfter": _after,
    "EndTransaction": _end,
    "Recall": _recall,
}
