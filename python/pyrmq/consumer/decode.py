"""Decodes bodies to the type of a listener's annotation."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import typing
from collections.abc import Callable, Sequence
from typing import Any

from pyrmq.errors import ConfigError
from pyrmq.message import ReceivedMessage

__all__ = ["Decoder", "decoder_of"]

Decoder = Callable[[ReceivedMessage], Any]
"""Makes a listener's argument from a message."""


def _body(message: ReceivedMessage) -> bytes:
    return message.body


def _text(message: ReceivedMessage) -> str:
    return message.body.decode()


def _json(message: ReceivedMessage) -> dict[str, Any]:
    value = json.loads(message.body)
    if not isinstance(value, dict):
        raise TypeError(
            f"the body is a JSON {type(value).__name__}, the listener expects an object"
        )
    return value


def _dataclass(kind: type) -> Decoder:
    def decode(message: ReceivedMessage) -> Any:  # noqa: ANN401 - an instance of `kind`
        return kind(**_json(message))

    return decode


def _annotation(listener: Callable[..., object]) -> Any:  # noqa: ANN401 - any type, or a text that names one
    """Return the annotation of the first parameter."""
    signature = inspect.signature(listener)
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"listener {listener!r} must take one argument, the message or what its annotation "
            f"names: {error}"
        ) from None
    first = next(iter(signature.parameters), "")
    function = listener
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return _hints(listener, function).get(first, inspect.Parameter.empty)


def _hints(listener: Callable[..., object], function: Callable[..., object]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:
        pass
    try:
        # Many import this class only for the type checker.
        return typing.get_type_hints(function, localns={"ReceivedMessage": ReceivedMessage})
    except NameError as error:
        raise ConfigError(
            f"an annotation of listener {listener!r} cannot be resolved: {error}. Import the class "
            "outside `if TYPE_CHECKING`"
        ) from error


def decoder_of(listener: Callable[..., object], *, in_batches: bool) -> Decoder | None:
    """Choose how to make a listener's argument, by the annotation of its first parameter.

    Args:
        listener: The function, or an object that can be called.
        in_batches: It takes a list: the annotation is ``list[...]``.

    Returns:
        None if the listener takes the message itself.

    Raises:
        ConfigError: The listener does not take one argument, or the annotation is none of: nothing,
            ``ReceivedMessage``, ``bytes``, ``str``, ``dict``, a dataclass, a pydantic model.

    Example:
        >>> def handle(order: bytes) -> None: ...
        >>> decoder_of(handle, in_batches=False).__name__
        '_body'
    """
    kind = _annotation(listener)
    if in_batches and kind is not inspect.Parameter.empty:
        arguments = typing.get_args(kind)
        origin = typing.get_origin(kind)
        if origin not in {list, Sequence} or len(arguments) != 1:
            raise ConfigError(
                f"listener {listener!r} gets lists: annotate its argument with list[...], "
                f"not {kind!r}"
            )
        kind = arguments[0]
    plain = typing.get_origin(kind) or kind
    if plain in {inspect.Parameter.empty, ReceivedMessage, Any, object}:
        return None
    simple: dict[Any, Decoder] = {bytes: _body, str: _text, dict: _json}
    if plain in simple:
        return simple[plain]
    if isinstance(plain, type) and dataclasses.is_dataclass(plain):
        return _dataclass(plain)
    validate = getattr(plain, "model_validate_json", None)
    if validate is not None:
        return lambda message: validate(message.body)
    raise ConfigError(
        f"listener {listener!r} expects {kind!r}: it can be ReceivedMessage, bytes, str, dict, "
        "a dataclass or a pydantic model"
    )
