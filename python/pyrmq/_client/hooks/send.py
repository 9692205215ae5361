"""Hooks, which see each message before and after its send and may refuse it or add to it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar, cast

from pyrmq._client.hooks.calling import call_each
from pyrmq._core import check_options
from pyrmq.errors import RmqError
from pyrmq.message import (
    MessageOptions,
    ReplyOptions,
    SendResult,
    TransactionState,
    When,
    when_of,
)

__all__ = ["Hooks", "SendHook", "Sending", "SendingKind", "callback_raised"]

_log = logging.getLogger("pyrmq.producer")

SendingKind = Literal["send", "batch", "oneway", "request", "reply", "half"]
"""How a message is sent; ``send_async`` and ``produce`` are of the kind ``send``."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def callback_raised(error: BaseException) -> None:
    """Log an exception of a delivery callback: it must not end the thread that called it."""
    _log.error("a delivery callback raised %r", error, exc_info=error)


class Sending:
    """A message as hooks see it; one object stands for a whole call of ``send_batch``.

    Attributes:
        kind: How it is sent: ``send``, ``batch``, ``oneway``, ``request``, ``reply`` or
            ``half``.
        topic: Topic.
        body: Body; None for a batch.
        keys: Its key or keys.
        tags: Its tag.
        properties: Its properties. What a hook adds here is sent; in a batch, with each message.
        sharding_key: The key that keeps its order; None for a batch.
        when: When it is delivered: a delay level (0: at once), or the name and value of a timer
            property. 0 for a batch.
        group: The producer's group, without its namespace.
        namespace: The producer's namespace; empty without one.
        client_id: The producer's id at brokers.
        notes: Values that a hook stores before the send and reads after it.

    Example:
        >>> Sending("send", "orders", b"tea").properties
        {}
    """

    __slots__ = (
        "body",
        "client_id",
        "group",
        "keys",
        "kind",
        "namespace",
        "notes",
        "properties",
        "sharding_key",
        "tags",
        "topic",
        "when",
    )

    def __init__(
        self,
        kind: SendingKind,
        topic: str,
        body: object,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        when: When = 0,
        *,
        group: str = "",
        namespace: str = "",
        client_id: str = "",
    ) -> None:
        self.kind = kind
        self.topic = topic
        self.body = body
        self.keys = keys
        self.tags = tags
        self.properties: dict[str, str] = dict(properties) if properties else {}
        self.sharding_key = sharding_key
        self.when = when
        self.group = group
        self.namespace = namespace
        self.client_id = client_id
        self.notes: dict[object, Any] = {}

    def __repr__(self) -> str:
        return f"Sending({self.kind!r}, topic={self.topic!r}, keys={self.keys!r})"


class SendHook:
    """Sees everything that a producer sends: for spans, counters, rules. Override what you need.

    Example:
        >>> class Count(SendHook):
        ...     sent = 0
        ...     def before_send(self, sending):
        ...         if sending.topic == "forbidden":
        ...             raise ValueError(sending.topic)
        ...     def after_send(self, sending, error, result):
        ...         self.sent += error is None
    """

    def before_send(self, sending: Sending) -> None:
        """Called before a message is sent. An exception refuses the message.

        Example:
            >>> SendHook().before_send(Sending("send", "orders", b"tea"))
        """

    def after_send(self, sending: Sending, error: BaseException | None, result: Any) -> None:  # noqa: ANN401 - by kind
        """Called once with the outcome, in the thread of callbacks. Exceptions are logged.

        A call of the application raises KeyboardInterrupt and SystemExit once all were called.

        Args:
            sending: The object that ``before_send`` got.
            error: The error, or None.
            result: A :class:`SendResult`, or a list of them for a batch. None for a one-way send,
                or if the send failed.

        Example:
            >>> SendHook().after_send(Sending("oneway", "orders", b"tea"), None, None)
        """

    def after_transaction(
        self, topic: str, message_id: str, state: TransactionState, *, asked: bool
    ) -> None:
        """Called when a transaction has ended. Exceptions are logged.

        Args:
            topic: The message's topic.
            message_id: The message's unique id, which is also the transaction's.
            state: How it ended.
            asked: Whether this answers a check of the broker.

        Example:
            >>> SendHook().after_transaction("t", "0A", TransactionState.COMMIT, asked=False)
        """


class Hooks:
    """The hooks of one producer, called in order before a send and in reverse order after it."""

    def __init__(self, hooks: Sequence[SendHook], group: str = "", namespace: str = "") -> None:
        self._hooks = tuple(hooks)
        self._group, self._namespace = group, namespace
        # Known once the native producer is made.
        self.client_id = ""

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before(self, kind: SendingKind, topic: str, body: object, options: ReplyOptions) -> Sending:
        """Call the hooks before a send; the properties that they add go into the options.

        Raises:
            TypeError: This kind of send does not have one of the options.
        """
        check_options(kind, options)
        # Each kind has some of these.
        given = cast("MessageOptions", options)
        sending = Sending(
            kind,
            topic,
            body,
            given.get("keys"),
            given.get("tags"),
            given.get("properties"),
            None if kind == "batch" else given.get("sharding_key"),
            when_of(given.get("delay_level", 0), given.get("delay"), given.get("deliver_at")),
            group=self._group,
            namespace=self._namespace,
            client_id=self.client_id,
        )
        for number, hook in enumerate(self._hooks):
            try:
                hook.before_send(sending)
            except BaseException as error:
                self._call_after(self._hooks[:number], sending, error, None)
                raise
        options["properties"] = sending.properties
        return sending

    def after(self, sending: Sending, error: BaseException | None, result: object) -> None:
        """Call the hooks with an outcome, each of them even if others raise.

        Raises:
            KeyboardInterrupt, SystemExit: The last that a hook raised.
        """
        self._call_after(self._hooks, sending, error, result)

    def attempt(
        self,
        sending: Sending,
        call: Callable[_Given, _Result],
        *arguments: _Given.args,
        **options: _Given.kwargs,
    ) -> _Result:
        """Call `call`; if it raises, that is the outcome."""
        try:
            return call(*arguments, **options)
        except BaseException as error:
            self.after(sending, error, None)
            raise

    def whole(
        self,
        sending: Sending,
        call: Callable[_Given, _Result],
        *arguments: _Given.args,
        **options: _Given.kwargs,
    ) -> _Result:
        """Call `call`, which returns the outcome, and the hooks with it."""
        result = self.attempt(sending, call, *arguments, **options)
        self.after(sending, None, result)
        return result

    def ended(self, topic: str, message_id: str, state: TransactionState, *, asked: bool) -> None:
        """Call the hooks with the end of a transaction, each of them even if others raise.

        Raises:
            KeyboardInterrupt, SystemExit: The last that a hook raised.
        """
        calls = (
            partial(hook.after_transaction, topic, message_id, state, asked=asked)
            for hook in reversed(self._hooks)
        )
        call_each(calls, callback_raised)

    def callback(
        self, sending: Sending, then: Callable[[RmqError | None, SendResult | None], object] | None
    ) -> Callable[[RmqError | None, SendResult | None], object]:
        """Make a delivery callback that calls the hooks first."""

        def on_delivery(error: RmqError | None, result: SendResult | None) -> None:
            try:
                self.after(sending, error, result)
            finally:
                if then is not None:
                    then(error, result)

        return on_delivery

    def watch(self, sending: Sending, future: Any) -> None:  # noqa: ANN401 - of threads or a loop
        """Call the hooks when a future is done."""

        def on_done(done: Any) -> None:  # noqa: ANN401 - of either kind
            if done.cancelled():
                self.after(sending, CancelledError(), None)
                return
            error = done.exception()
            self.after(sending, error, None if error else done.result())

        future.add_done_callback(on_done)

    def _call_after(
        self,
        hooks: Sequence[SendHook],
        sending: Sending,
        error: BaseException | None,
        result: object,
    ) -> None:
        calls = (partial(hook.after_send, sending, error, result) for hook in reversed(hooks))
        call_each(calls, callback_raised)
