"""What handlers do with a request's header, and the JSON that they answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.server.processors import SYSTEM_ERROR, Refused

if TYPE_CHECKING:
    from pyrmq import _core


def required(request: _core.Request, key: str) -> str:
    """A header field that must be there and not be blank.

    Raises:
        Refused: with SYSTEM_ERROR, which is what Apache answers.

    Example:
        >>> required(request, "topic")  # doctest: +SKIP
        'orders'
    """
    value = request.get(key)
    if value is None or not value.strip():
        raise Refused(SYSTEM_ERROR, f"the header field `{key}` is missing: code {request.code}")
    return value


def as_json(value: object) -> bytes:
    """Compact JSON as fastjson writes it: no blanks, UTF-8 unescaped.

    Example:
        >>> as_json({"topicList": ["a"]})
        b'{"topicList":["a"]}'
    """
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
