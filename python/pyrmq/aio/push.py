"""The consumer that awaits a coroutine for each message.

Example:
    >>> import asyncio
    >>> from pyrmq.aio import Producer, PushConsumer
    >>> from pyrmq.testing import cluster
    >>> async def main(address: str) -> None:
    ...     async with Producer(name_server=address) as producer:
    ...         await producer.send("orders", b"two coffees")
    ...     seen = asyncio.Event()
    ...     consumer = PushConsumer(name_server=address, group="kitchen")
    ...     @consumer.listener("orders")
    ...     async def handle(body: bytes) -> None:
    ...         print(body)
    ...         seen.set()
    ...     async with consumer:
    ...         await asyncio.wait_for(seen.wait(), 10)
    >>> with cluster() as running:
    ...     asyncio.run(main(running.name_server))
    b'two coffees'
"""

from __future__ import annotations

import asyncio
import io
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from pyrmq._client.failure_log import kind_of
from pyrmq._client.options.consumer import ListenerArguments, ListenerOptions
from pyrmq._client.values import milliseconds
from pyrmq.aio.completions import CompletionList
from pyrmq.aio.signals import stop_signals
from pyrmq.consumer.call import (
    Failed,
    UnfitBody,
    failure_of,
    is_coroutine_function,
    raising,
)
from pyrmq.consumer.listening import ListeningConsumer
from pyrmq.consumer.outcome import (
    LATER,
    Failure,
    failure_of_error,
    failure_of_result,
    hand_back_time,
)
from pyrmq.errors import ClosedError, CommitError, ConfigError

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.message import ReceivedMessage

__all__ = ["PushConsumer"]

_log = logging.getLogger("pyrmq.consumer")

_LOOP_CHECK_S = 1.0
"""Time between two checks that the loop is still open."""

_DIRECT_S = 10.0
"""Time of a call that an operator requested; its broker waits no longer."""

_Function = TypeVar("_Function", bound=Callable[..., Awaitable[object]])
_Result = TypeVar("_Result")


class PushConsumer(ListeningConsumer):
    """Awaits a coroutine function for each message of the group's topics, in one event loop.

    Arguments, and the outcomes of messages, are those of :class:`pyrmq.PushConsumer`, except
    `tasks`.

    Args:
        name_server: ``host:port;host:port``, or a sequence of ``host:port``; without it the
            environment variable ``NAMESRV_ADDR`` is read.
        group: Consumer group.
        tasks: Number of concurrent calls.
        order: ``"none"``, ``"queue"`` or ``"key"``.
        consume_batch: Maximum messages per call; above 1 a listener gets a list.
        time_limit: Seconds that a call may take. A longer one is cancelled, and its message is
            delivered again.
        max_tries: Redeliveries of a message that fails, before it becomes a dead letter.
        suspend_pause: Seconds before a message that failed is tried again, if an order is kept.
        start: Where the group begins in a queue that it has never committed.
        instance_name: Distinguishes consumers of one process for brokers.
        ahead_bytes: Memory of what is fetched and not done, for all queues together.
        ahead_messages: Messages that are fetched and not done, for all queues together. None: only
            `ahead_bytes` limits them.
        max_span: How far a queue is handed out beyond its first message that is not done. After a
            crash, at most this many of its messages are delivered again.
        commit_interval: Seconds between commits of what is done.
        rebalance: Seconds between checks of this member's share of the queues.
        namespace: Prefix of the names of group and topics.
        unit_name: The unit that this client belongs to.
        address_server: HTTP address of the list of name servers.
        allocate: How the members of the group share the queues.
        broadcasting: Every member gets every message.
        offset_dir: Folder of the offsets of broadcasting members.
        hooks: See each message before and after its call, in its task.
        request_fields: Header fields that are added to each request of this consumer and
            signed with it, such as a tenant's name (Apache: what an ``RPCHook`` adds); at most
            4 KiB.
        credentials: The user that requests are sent as, and its secret. Default: the file that the
            environment variable ``PYRMQ_CREDENTIALS`` names; without it requests are not signed.
        tls: Open connections with TLS. Default: what the credentials file or the environment
            variable ``PYRMQ_TLS`` says; without them plain TCP.
        trace: Write Apache's message traces for each call.
        trace_topic: Topic of the traces.
        invisible: Seconds that a message is hidden from other members in a group that pops.
        client_rebalance: Pull even if the group's mode on its brokers is POP.

    Raises:
        ConfigError: An option is out of its range, or no name server is given.

    Example:
        >>> consumer = PushConsumer(name_server="127.0.0.1:9876", group="kitchen")
    """

    def __init__(self, *, tasks: int = 64, **options: Unpack[ListenerArguments]) -> None:
        super().__init__(ListenerOptions.of(tasks, options))
        self._outcomes = CompletionList()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._done = self._timed_out = 0
        self._is_closed = asyncio.Event()
        # Whether the wait for a close was cancelled; the close continues.
        self._is_interrupted = False

    def subscribe(
        self,
        topic: str,
        listener: Callable[[Any], Awaitable[object]],
        tags: str = "*",
        *,
        sql: str | None = None,
    ) -> None:
        """Set the coroutine function that gets a topic's messages.

        See :meth:`pyrmq.PushConsumer.subscribe`.

        Raises:
            ConfigError: The listener is not a coroutine function, or as there.

        Example:
            >>> consumer.subscribe("orders", handle, tags="new || paid")  # doctest: +SKIP
        """
        if not is_coroutine_function(listener):
            raise ConfigError(
                f"listener {listener!r} is not a coroutine function: define it with `async def` or "
                "use pyrmq.PushConsumer"
            )
        self._add(topic, listener, tags, sql)

    def listener(
        self, topic: str, tags: str = "*", *, sql: str | None = None
    ) -> Callable[[_Function], _Function]:
        """Set the coroutine function that gets a topic's messages, as a decorator.

        Example:
            >>> @consumer.listener("orders")  # doctest: +SKIP
            ... async def handle(order: dict) -> None:
            ...     print(order["id"])
        """

        def name(function: _Function) -> _Function:
            self.subscribe(topic, function, tags, sql=sql)
            return function

        return name

    async def start(self) -> None:
        """Join the group and start calling listeners.

        Raises:
            ConfigError: No topic is subscribed, or the consumer has started.
            ClosedError: The consumer is closed. One that fails to start is closed, too.
            RmqError: As :meth:`pyrmq.PushConsumer.start`.

        Example:
            >>> await consumer.start()  # doctest: +SKIP
        """
        self._note_start()
        self._loop = asyncio.get_running_loop()
        try:
            self._start_callbacks()
            for topic, (text, is_sql) in self._filters.items():
                await self._outcomes.call(self._control.subscribe, topic, text, is_sql)
            self._loop.add_reader(self._core.fileno(), self._on_arrival)
            self._take()
        except BaseException:
            # It may have joined the group already, and must not hold queues that it does not read.
            self._closed = True
            await self._finish_closing()
            raise

    def _start_callbacks(self) -> None:
        # The thread must not hold a consumer that was dropped with its loop.
        self._callbacks = self._callback_thread(
            _weak(self._stacks, ""),
            _weak(self._consume_directly, ("raised", "the consumer is closed")),
        )
        self._callbacks.repeat(_LOOP_CHECK_S, _weak(self._leave_with_loop, None))
        self._callbacks.start()

    async def run(self, *, grace: float = 30.0) -> None:
        """Start, and wait until SIGTERM, SIGINT (Ctrl-C), a cancellation or :meth:`close`.

        Then close. Only for the main thread, which gets signals. They end all consumers that run in
        this loop; then the former handlers are restored.

        Args:
            grace: Seconds for running calls to finish.

        Raises:
            ConfigError: This is not the main thread.
            RmqError: As :meth:`start`.

        Example:
            >>> asyncio.run(consumer.run())  # doctest: +SKIP
        """
        try:
            with stop_signals() as signalled:
                stops = [asyncio.ensure_future(one.wait()) for one in (signalled, self._is_closed)]
                try:
                    if await self._start_unless(stops):
                        await asyncio.wait(stops, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for stop in stops:
                        stop.cancel()
        finally:
            await self.close(grace)

    async def _start_unless(self, stops: Sequence[asyncio.Future[Any]]) -> bool:
        """Start, or give up once one of these ends: a server may be silent. False: gave up."""
        start = asyncio.ensure_future(self.start())
        ends: list[asyncio.Future[Any]] = [start, *stops]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            has_started = start.done()
            if not has_started:
                start.cancel()
                await asyncio.wait([start])
                if not start.cancelled() and (error := start.exception()) is not None:
                    _log.info("group %s: stopped while it started: %s", self._group, error)
        if has_started:
            start.result()
        return has_started

    async def commit(self) -> None:
        """Commit what is done, without waiting for the next interval.

        Raises:
            CommitError: Some brokers refused or did not answer; it lists their queues.

        Example:
            >>> await consumer.commit()  # doctest: +SKIP
        """
        await self._outcomes.call(self._control.commit)
        if self._offset_file:
            await asyncio.to_thread(self._offset_file.write)

    async def close(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - as the sync form
        """Take nothing more, wait for running calls, commit, and leave the group.

        Calls that have not returned by then are cancelled, and their messages are delivered again.
        A second call waits for the first, even if that was cancelled and is finished in the
        background. A listener must not await it: it would wait for itself. In a forked child it
        does nothing: the consumer is the parent's.

        Args:
            timeout: Seconds for running calls to finish.

        Raises:
            CommitError: Some positions could not be committed; it lists the queues. The consumer is
                closed nevertheless.

        Example:
            >>> await consumer.close()  # doctest: +SKIP
        """
        milliseconds("timeout", timeout)
        if asyncio.current_task() in self._tasks:
            raise ConfigError("a listener cannot await `close`: start it as a separate task")
        if self._is_closed.is_set():
            await self._await_interrupted()
            return
        if self._outcomes.is_inherited():
            self._closed = True
            self._is_closed.set()
            self._finalizer.detach()
            return
        self._outcomes.check_loop(self._loop)
        if self._closed:
            await self._is_closed.wait()
            await self._await_interrupted()
            return
        self._closed = True
        try:
            if self._loop is not None:
                await self._end_calls(timeout)
        finally:
            await self._finish_closing()

    async def __aenter__(self) -> Self:
        """Start, and return the consumer."""
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the consumer.

        After an exception in the block a failed commit is only logged, so that the exception is
        raised.
        """
        try:
            await self.close()
        except CommitError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        state = "closed" if self._closed else "not started" if self._loop is None else "running"
        return f"<aio.PushConsumer group={self._group!r}, topics={sorted(self._calls)}, {state}>"

    def _counts(self) -> tuple[int, int]:
        return self._done, self._timed_out

    def _on_arrival(self) -> None:
        self._core.hush()
        self._take()

    def _take(self) -> None:
        """Start a task for each call that may run now."""
        assert self._loop is not None
        while len(self._tasks) < self._options.threads:
            try:
                taken = self._core.take(self._options.consume_batch, 0)
            except ClosedError:
                return
            if taken is None:
                return
            task = self._loop.create_task(self._handle(*taken))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "group %s: an error of the consumer; its messages will be delivered again"
            self._failures.add(text, self._group, kind=kind_of(error), error=error)
        self._take()
        if not self._tasks:
            self._idle.set()

    async def _handle(self, messages: list[ReceivedMessage], work: _core.Work) -> None:
        """Call listeners for messages, and report the outcomes."""
        if self._options.order == "queue" and not self._core.holds(work):
            self._finish(work, len(messages), _untouched(messages))
            return
        try:
            failed = await self._call(messages)
        except asyncio.CancelledError:
            self._finish(work, len(messages), _untouched(messages))
            raise
        except BaseException:
            # An error of the consumer, or one that ends the loop: their message has been tried.
            self._finish(work, len(messages), _later(range(len(messages))))
            raise
        try:
            self._finish(work, len(messages), failed)
        except BaseException:
            failed = _later(place for place, *_ in failed)
            self._finish(work, len(messages), failed)
            raise
        finally:
            self._done += len(messages) - len(failed)

    def _finish(self, work: _core.Work, count: int, failed: Failed) -> None:
        self._core.finish(work, 0, count, failed)

    async def _call(self, messages: list[ReceivedMessage]) -> Failed:
        failed: Failed = []
        topics: dict[str, list[tuple[int, object]]] = {}
        for place, message in enumerate(messages):
            try:
                argument = self._argument(message)
                topics.setdefault(message.topic, []).append((place, argument))
            except BaseException as error:
                if _is_for_the_loop(error):
                    raise
                # An error of a body, or of the application's decoder.
                outcome = failure_of(self._failures, self._group, message, error)
                failed.append((place, *outcome))
        for topic, arguments in topics.items():
            given = [argument for _, argument in arguments]
            one = given if self._options.consume_batch > 1 else given[0]
            concerned = [messages[place] for place, _ in arguments]
            try:
                failure = await self._call_topic(topic, one, concerned)
            except BaseException as error:
                if _is_for_the_loop(error):
                    raise
                failure = failure_of(self._failures, self._group, concerned[0], error)
            if failure is not None:
                failed += [(place, *failure) for place, _ in arguments]
        return sorted(failed)

    def _argument(self, message: ReceivedMessage) -> object:
        """Decode a message; hooks see one that does not fit, since no call gets it."""
        try:
            return self._calls[message.topic].argument(message)
        except UnfitBody as error:
            fail = raising(error)
            self._hooks.process(message.topic, [message], fail, failure_of_error, in_loop=True)
            raise

    async def _call_topic(
        self, topic: str, argument: object, messages: Sequence[ReceivedMessage]
    ) -> Failure | None:
        """Await a listener between the hooks; the time limit's cancellation is a TimeoutError."""
        try:
            async with asyncio.timeout(self._options.time_limit) as limit:
                return await self._hooks.process_async(
                    topic, messages, partial(self._await, topic, argument), failure_of_error
                )
        except BaseException:
            if limit.expired():
                self._timed_out += len(messages)
            raise

    async def _await(self, topic: str, argument: object) -> Failure | None:
        return failure_of_result(await self._calls[topic].function(argument))  # type: ignore[misc]

    async def _end_calls(self, timeout: float) -> None:  # noqa: ASYNC109 - as the sync form
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        await self._outcomes.call(self._core.drain, 0)
        self._take()
        while self._tasks and loop.time() < until:
            self._idle.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._idle.wait()
            except TimeoutError:
                break
        if self._tasks:
            text = "group %s: closed while %d calls ran; their messages will be delivered again"
            _log.warning(text, self._group, len(self._tasks))
            left = [*self._tasks]
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1.0)
        left_ms = milliseconds("timeout", hand_back_time(until - loop.time()))
        await self._outcomes.call(self._core.drain, left_ms)

    async def _finish_closing(self) -> None:
        """Commit, and leave the group."""
        self._finalizer.detach()
        try:
            try:
                if self._loop is not None:
                    self._loop.remove_reader(self._core.fileno())
            finally:
                await self._outcomes.call(self._control.shut, True)
        except BaseException as error:
            self._is_interrupted = not isinstance(error, Exception)
            raise
        finally:
            try:
                # The thread finishes it even if this task is cancelled meanwhile.
                await asyncio.to_thread(self._end_thread)
            finally:
                self._outcomes.close()
                self._is_closed.set()
                self._unlog()

    async def _await_interrupted(self) -> None:
        """Wait for the end of a close that was cancelled, which continues in the background."""
        if self._is_interrupted:
            await asyncio.to_thread(self._control.shut, True)

    def _leave_with_loop(self) -> None:
        """Leave the group after the loop ended without a close; called in another thread."""
        if self._closed or self._loop is None or not self._loop.is_closed():
            return
        self._closed = True
        self._is_closed.set()
        _log.warning("group %s: the event loop ended without `close`; leaving", self._group)
        self._finalizer()
        self._offset_file.write_at_end()
        self._failures.report(at_end=True)
        self._unlog()

    def _stacks(self) -> str:
        """Return the stacks of the listeners' calls; called in another thread."""
        texts = []
        for task in [*self._tasks]:
            text = io.StringIO()
            task.print_stack(file=text)
            texts.append(f'"{task.get_name()}"\n{text.getvalue()}')
        return "\n".join(texts)

    def _consume_directly(self, message: ReceivedMessage) -> tuple[str, str | None]:
        """Call the listener for a message that an operator has chosen; called in another thread."""
        if self._loop is None:
            return "raised", "the consumer has not started"
        try:
            call = self._call_directly(message)
            return asyncio.run_coroutine_threadsafe(call, self._loop).result(_DIRECT_S)
        except Exception as error:  # noqa: BLE001 - the answer says it
            return "raised", repr(error)

    async def _call_directly(self, message: ReceivedMessage) -> tuple[str, str | None]:
        try:
            argument = self._calls[message.topic].argument(message)
            given = [argument] if self._options.consume_batch > 1 else argument
            failure = await self._call_topic(message.topic, given, [message])
        except BaseException as error:
            if _is_for_the_loop(error):
                raise
            failure_of(self._failures, self._group, message, error)
            return "raised", repr(error)
        return ("success", None) if failure is None else ("later", None)


def _is_for_the_loop(error: BaseException) -> bool:
    """Whether an exception ends the task or the loop, rather than mean that a call failed."""
    if isinstance(error, asyncio.CancelledError):
        # Without a request to cancel this task, it comes from something that the listener awaited.
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


def _weak(method: Callable[..., _Result], without: _Result) -> Callable[..., _Result]:
    """Call a method of an object without holding it; return `without` once it is collected."""
    weak = weakref.WeakMethod(method)

    def call(*arguments: object) -> _Result:
        found = weak()
        return without if found is None else found(*arguments)

    return call


def _later(places: Iterable[int]) -> Failed:
    return [(place, *LATER) for place in places]


def _untouched(messages: Sequence[ReceivedMessage]) -> Failed:
    return [(place, "untouched", 0) for place in range(len(messages))]
