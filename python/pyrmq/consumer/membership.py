"""Group membership of consumers: filters, topics, the file of a member."""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq._client.values import name_servers
from pyrmq._names import INTERNAL_PREFIXES
from pyrmq.codes import RequestCode
from pyrmq.consumer.call import log_error
from pyrmq.consumer.callbacks import CallbackThread
from pyrmq.consumer.local_offsets import LocalOffsets
from pyrmq.consumer.trace import Trace
from pyrmq.errors import ClosedError, ConfigError, ForkError, RmqError
from pyrmq.remoting import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq._client.hooks.consume import ConsumeHooks
    from pyrmq._client.options.consumer import ConsumerOptions
    from pyrmq._core import ConsumerControl
    from pyrmq.consumer.subscriptions import SubscribeCall

__all__ = [
    "OffsetFile",
    "SimpleSubscriptions",
    "all_topics",
    "callbacks_of",
    "filter_of",
    "start_trace",
]

_log = logging.getLogger("pyrmq.consumer")

_TRACE_S = 1.0
"""Maximum time that a trace waits for others."""


def filter_of(tags: str, sql: str | None) -> tuple[str, bool]:
    """Read a subscription's filter: its text, and whether it is a condition.

    Raises:
        ConfigError: Both are given.
    """
    if sql is None:
        return tags, False
    if tags != "*":
        raise ConfigError(f"give `tags` or `sql`, not both: tags={tags!r}, sql={sql!r}")
    return sql, True


def callbacks_of(
    control: ConsumerControl, offset_file: OffsetFile, options: ConsumerOptions, hooks: ConsumeHooks
) -> tuple[CallbackThread | None, Trace | None]:
    """Start the thread of a polled consumer, if it has something to do, and its trace."""
    thread = CallbackThread(control, options.group, allocator=options.allocator())
    has_file = offset_file.write_each(options.auto_commit, thread)
    trace = start_trace(options, hooks, thread)
    if not has_file and options.allocator() is None and trace is None:
        return None, None
    thread.start()
    return thread, trace


def start_trace(
    options: ConsumerOptions, hooks: ConsumeHooks, thread: CallbackThread
) -> Trace | None:
    """Create the trace of a consumer that has one; the thread sends it every few seconds."""
    if not options.trace:
        return None
    trace = Trace(options, lambda: thread.call_soon(trace.flush))
    hooks.add(trace)
    thread.repeat(_TRACE_S, trace.flush)
    return trace


class OffsetFile:
    """Keeps a broadcasting member's offsets in its file; does nothing for other consumers.

    Raises:
        ConfigError: The file and its backup are damaged.
    """

    def __init__(self, control: ConsumerControl, options: ConsumerOptions) -> None:
        self._control = control
        self._pid = os.getpid()
        self._file: LocalOffsets | None = None
        if options.broadcasting:
            namespace = options.namespace
            group = f"{namespace}%{options.group}" if namespace else options.group
            self._file = LocalOffsets(options.offset_dir, control.client_id(), group)
            self._file.take()
            control.begin_at(self._file.read())

    def __bool__(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def write_each(self, seconds: float | None, thread: CallbackThread) -> bool:
        """Write the file every `seconds`. False: there is no file."""
        if self._file is None or seconds is None:
            return False
        thread.repeat(seconds, self.write)
        return True

    def write(self) -> None:
        """Write the offsets of what is done.

        Raises:
            OSError: The file cannot be written.
        """
        if self._file is not None:
            self._file.write(self._control.local_offsets)

    def write_at_end(self) -> None:
        """Write the offsets; a failure is logged, and the last messages are delivered again.

        A forked child writes nothing: the file belongs to its parent, whose threads may have held
        the file's lock during the fork.
        """
        if self._pid != os.getpid():
            return
        try:
            self.write()
        except OSError:
            _log.exception("offsets not written")
        finally:
            if self._file is not None:
                self._file.release()


class SimpleSubscriptions:
    """The topics of a simple consumer and their filters, so that a call can be undone.

    Args:
        core: The native consumer.
        group: Its group, for the log.
    """

    def __init__(self, core: _core.SimpleConsumer, group: str) -> None:
        self._core = core
        self._group = group
        self._filters: dict[str, tuple[str, bool]] = {}
        # Held over the network, so that what a call undoes is never another's. A signal's handler
        # may subscribe while its thread does.
        self._changing = threading.RLock()

    def subscribe(self, topics: Sequence[str], call: SubscribeCall) -> None:
        """Subscribe to topics until the call is cancelled; one call after the other.

        Raises:
            RmqError: A topic could not be joined; those before it are.
        """
        # Raises in a forked child, where another thread of the parent may have the lock for ever.
        self._core.counts()
        with self._changing:
            for topic in topics:
                if call.is_cancelled:
                    return
                call.before.setdefault(topic, self._filters.get(topic))
                self._core.subscribe(topic, *call.filter)
                self._filters[topic] = call.filter

    def undo(self, call: SubscribeCall) -> None:
        """Restore the filters of a call's topics, and leave those that had none.

        A failure is logged.
        """
        with self._changing:
            for topic, old in call.before.items():
                now = self._filters.get(topic)
                if now is not old and now is not call.filter:
                    # Another call has replaced it since.
                    continue
                self._filters.pop(topic, None)
                try:
                    if old is None:
                        self._core.unsubscribe(topic)
                    else:
                        self._core.subscribe(topic, *old)
                        self._filters[topic] = old
                except (ClosedError, ForkError):
                    return
                except RmqError as error:
                    text = "group %s: the subscription of %s is not undone"
                    log_error(text, self._group, topic, error=error)

    def forget(self, topic: str) -> None:
        """Forget the filter of a topic that is left."""
        self._filters.pop(topic, None)


def all_topics(options: ConsumerOptions, *, of_all: bool = False) -> set[str]:
    """Request all topics of a consumer's namespace, by the names that the consumer uses.

    Args:
        options: The consumer's options.
        of_all: What any name server knows that answers. Otherwise: what the first one knows.

    Raises:
        RmqError: No name server answered, or one refused.
    """
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    failure: RmqError | None = None
    found: set[str] | None = None
    with Client(credentials=options.credentials, tls=options.tls) as client:
        for address in name_servers(options.name_server):
            try:
                answer = client.ask(address, code, options.request_fields)
            except RmqError as error:
                failure = error
                continue
            names: list[str] = json.loads(answer.body or b"{}").get("topicList", [])
            topics = (_own(name, options.namespace) for name in names)
            found = (found or set()) | {topic for topic in topics if topic is not None}
            if not of_all:
                break
    if found is not None:
        return found
    assert failure is not None
    raise failure


def _own(name: str, namespace: str) -> str | None:
    """Return a topic as its consumer names it; None for others' and RocketMQ's own."""
    if name in _core.SYSTEM_TOPICS or name.startswith(INTERNAL_PREFIXES):
        return None
    if not namespace:
        return name
    prefix = f"{namespace}%"
    return name.removeprefix(prefix) if name.startswith(prefix) else None
