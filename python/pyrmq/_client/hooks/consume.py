"""Hooks of consumers, which see messages when they are received and when they are processed."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyrmq._client.failure_log import FailureLog, kind_of
from pyrmq._client.hooks.calling import call_each

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pyrmq.message import ReceivedMessage

__all__ = ["ConsumeHook", "ConsumeHooks", "ConsumeOutcome", "Consuming"]

ConsumeOutcome = Literal["success", "later", "again", "dead"]
"""The outcome of messages: done, delivered later, tried again here, or dead letters."""

_Failure = tuple[str, int]


class Consuming:
    """Messages of one topic as hooks see them.

    Attributes:
        topic: Topic.
        messages: The messages of one call of a listener, or of one poll.
        group: The consumer's group, without its namespace.
        namespace: The consumer's namespace; empty without one.
        client_id: The consumer's id at brokers.
        began: When the call, or the poll, began: `time.monotonic()`.
        notes: Values that a hook stores before a call and reads after it.

    Example:
        >>> Consuming("orders", [], group="kitchen").topic
        'orders'
    """

    __slots__ = ("began", "client_id", "group", "messages", "namespace", "notes", "topic")

    def __init__(
        self,
        topic: str,
        messages: Sequence[ReceivedMessage],
        *,
        group: str = "",
        namespace: str = "",
        client_id: str = "",
    ) -> None:
        self.topic = topic
        self.messages = messages
        self.group = group
        self.namespace = namespace
        self.client_id = client_id
        self.began = time.monotonic()
        self.notes: dict[object, Any] = {}

    def __repr__(self) -> str:
        return f"Consuming(topic={self.topic!r}, {len(self.messages)} messages)"


class ConsumeHook:
    """Sees what a consumer receives and processes. Override what you need.

    Exceptions of hooks are logged; they change nothing for the messages. KeyboardInterrupt and
    SystemExit are raised once all hooks were called, if the caller is the application: by a poll,
    whose messages the next poll returns, and by the event loop.

    Example:
        >>> class Count(ConsumeHook):
        ...     failed = 0
        ...     def after_process(self, consuming, error, outcome):
        ...         self.failed += outcome != "success"
    """

    def after_receive(self, consuming: Consuming) -> None:
        """Called when a poll returns messages, once for each topic.

        Example:
            >>> ConsumeHook().after_receive(Consuming("orders", []))
        """

    def before_process(self, consuming: Consuming) -> None:
        """Called before a listener, in its thread or task.

        Example:
            >>> ConsumeHook().before_process(Consuming("orders", []))
        """

    def after_process(
        self, consuming: Consuming, error: BaseException | None, outcome: ConsumeOutcome
    ) -> None:
        """Called after a listener, in its thread or task.

        Args:
            consuming: The object that ``before_process`` got.
            error: What the listener raised, or None.
            outcome: The outcome of the messages.

        Example:
            >>> ConsumeHook().after_process(Consuming("orders", []), None, "success")
        """


class ConsumeHooks:
    """The hooks of one consumer, called in order before a call and in reverse order after it.

    Attributes:
        failures: The log of what hooks raise, and of the consumer's other failures.
    """

    def __init__(self, hooks: Sequence[ConsumeHook], group: str, namespace: str) -> None:
        self._hooks = [*hooks]
        self.failures = FailureLog()
        self._group, self._namespace = group, namespace
        # Known once the native consumer is made.
        self.client_id = ""

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: ConsumeHook) -> None:
        """Add a hook after the others."""
        self._hooks.append(hook)

    def received(self, messages: Sequence[ReceivedMessage], began: float) -> None:
        """Call the hooks for what a poll returned.

        Raises:
            KeyboardInterrupt, SystemExit: A hook raised it.
        """
        topics: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            topics.setdefault(message.topic, []).append(message)
        calls: list[Callable[[], None]] = []
        for topic, of_topic in topics.items():
            consuming = self._consuming(topic, of_topic)
            consuming.began = began
            calls += [partial(hook.after_receive, consuming) for hook in self._hooks]
        call_each(calls, self._report)

    def process(
        self,
        topic: str,
        messages: Sequence[ReceivedMessage],
        call: Callable[[], _Failure | None],
        failure_of: Callable[[BaseException], _Failure],
        *,
        in_loop: bool = False,
    ) -> _Failure | None:
        """Call a listener between the hooks; return, or raise, what it did.

        Raises:
            KeyboardInterrupt, SystemExit: With `in_loop` also those of hooks: they end the loop. A
                thread of the consumer continues.
        """
        consuming = self._before(topic, messages, in_loop=in_loop)
        try:
            failure = call()
        except BaseException as error:
            self._after(consuming, error, failure_of(error), in_loop=in_loop)
            raise
        self._after(consuming, None, failure, in_loop=in_loop)
        return failure

    async def process_async(
        self,
        topic: str,
        messages: Sequence[ReceivedMessage],
        call: Callable[[], Awaitable[_Failure | None]],
        failure_of: Callable[[BaseException], _Failure],
    ) -> _Failure | None:
        """Await a listener between the hooks; return, or raise, what it did.

        Raises:
            KeyboardInterrupt, SystemExit: Also those of hooks: they end the loop.
        """
        consuming = self._before(topic, messages, in_loop=True)
        try:
            failure = await call()
        except BaseException as error:
            self._after(consuming, error, failure_of(error), in_loop=True)
            raise
        self._after(consuming, None, failure, in_loop=True)
        return failure

    def _consuming(self, topic: str, messages: Sequence[ReceivedMessage]) -> Consuming:
        return Consuming(
            topic,
            messages,
            group=self._group,
            namespace=self._namespace,
            client_id=self.client_id,
        )

    def _before(
        self, topic: str, messages: Sequence[ReceivedMessage], *, in_loop: bool
    ) -> Consuming:
        consuming = self._consuming(topic, messages)
        calls = [partial(hook.before_process, consuming) for hook in self._hooks]
        self._call_hooks(calls, in_loop=in_loop)
        return consuming

    def _after(
        self,
        consuming: Consuming,
        error: BaseException | None,
        failure: _Failure | None,
        *,
        in_loop: bool,
    ) -> None:
        outcome: Any = "success" if failure is None else failure[0]
        calls = [
            partial(hook.after_process, consuming, error, outcome) for hook in reversed(self._hooks)
        ]
        self._call_hooks(calls, in_loop=in_loop)

    def _call_hooks(self, calls: Iterable[Callable[[], None]], *, in_loop: bool) -> None:
        try:
            call_each(calls, self._report)
        except (KeyboardInterrupt, SystemExit):
            if in_loop:
                raise

    def _report(self, raised: BaseException) -> None:
        self.failures.add("a hook raised %r", raised, kind=kind_of(raised), error=raised)
