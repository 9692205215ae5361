"""The topics of a polled consumer: by name, by pattern, and given back if it is not polled."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from time import monotonic
from typing import TYPE_CHECKING

from pyrmq.consumer.call import log_error
from pyrmq.consumer.membership import all_topics
from pyrmq.errors import ClosedError, ConfigError, ForkError, RmqError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    from pyrmq._client.options.consumer import ConsumerOptions
    from pyrmq._core import ConsumerControl
    from pyrmq.consumer.callbacks import CallbackThread

__all__ = ["Subscriptions", "await_joined"]

_log = logging.getLogger("pyrmq.consumer")

_CHECKS = 4
"""Checks of the time since the last poll, per interval."""

_Filter = tuple[str, bool]


def await_joined(joining: Future[Exception | None], wait_ms: int | None) -> None:
    """Wait until topics are joined again, at most `wait_ms`; None: without limit.

    Raises:
        RmqError: They could not be joined.
    """
    try:
        failure = joining.result(None if wait_ms is None else wait_ms / 1000)
    except TimeoutError:
        return
    if failure is not None:
        raise failure


class Subscriptions:
    """The subscriptions of a polled consumer.

    A separate thread looks for topics, leaves them and joins them again: the consumer's callback
    thread must be free for the allocation strategy that a new topic needs.

    Args:
        control: The native consumer.
        options: Its options.
    """

    def __init__(
        self,
        control: ConsumerControl,
        options: ConsumerOptions,
    ) -> None:
        self._control = control
        self._options = options
        self.group = options.group
        self._topics: dict[str, _Filter] = {}
        self._patterns: dict[re.Pattern[str], _Filter] = {}
        self._by_pattern: set[str] = set()
        # Guards the fields. Never held over the network: event loops take it.
        self._lock = threading.Lock()
        # Held over the network while topics are joined or left for patterns and polls. Taken before
        # the other one.
        self._changing = threading.Lock()
        self._polling = 0
        self._polled = monotonic()
        # The queues go back since there are no polls.
        self._is_away = False
        # Topics that were left for that reason, or are being left.
        self._left: set[str] = set()
        # Done when all of them are joined again, or with the error.
        self._joining: Future[Exception | None] | None = None
        self._apart: dict[str, threading.Thread] = {}
        self._pid = os.getpid()

    def serve(self, thread: CallbackThread) -> None:
        """Start the thread that looks for new topics and for missing polls."""
        thread.repeat(self._options.rebalance, self._look_apart)
        if self._options.max_poll_interval is not None:
            thread.repeat(self._options.max_poll_interval / _CHECKS, self.check)

    def filter_of(self, topic: str) -> _Filter | None:
        """Return the filter of a topic that is subscribed to; None for others."""
        if self._is_elsewhere():
            return None
        with self._lock:
            return self._topics.get(topic)

    def undo(self, before: Mapping[str, _Filter | None]) -> None:
        """Restore the filters of topics, and leave those that had none; a failure is logged.

        A call for several topics that fails must not leave the group joined for some of them.
        """
        if self._is_elsewhere():
            return
        for topic, old in before.items():
            # A cancelled call of an event loop goes on without its caller.
            self._control.cancel_subscribe(topic)
            try:
                if old is None:
                    self.remove(topic)
                    self._control.unsubscribe(topic, False)
                else:
                    self._control.subscribe(topic, *old)
                    self.add(topic, *old)
            except RmqError:
                _log.exception(
                    "group %s: the subscription to %s could not be undone",
                    self._options.group,
                    topic,
                )

    def add(self, topic: str, text: str, is_sql: bool) -> None:  # noqa: FBT001 - as the native one
        """Record a topic that was subscribed to by name."""
        if self._is_elsewhere():
            return
        with self._lock:
            self._topics[topic] = (text, is_sql)
            self._by_pattern.discard(topic)

    def add_pattern(self, pattern: re.Pattern[str], text: str, is_sql: bool) -> None:  # noqa: FBT001
        """Subscribe to all topics whose whole name matches, now and when they appear.

        Raises:
            ConfigError: The name servers are known only through an address server.
            RmqError: No name server answered, or a broker refused.
        """
        if self._options.address_server is not None:
            raise ConfigError(
                "a pattern of topics needs `name_server`: an address server has no list of topics"
            )
        if self._is_elsewhere():
            # This raises ForkError.
            self._control.paused()
        with self._lock:
            self._patterns[pattern] = (text, is_sql)
        self.look()

    def remove(self, topic: str) -> None:
        """Forget a topic."""
        if self._is_elsewhere():
            return
        with self._lock:
            self._topics.pop(topic, None)
            self._left.discard(topic)

    def look(self) -> None:
        """Subscribe to topics that match a pattern and are new, and leave those that are gone."""
        if not self._patterns:
            return
        known = all_topics(self._options)
        with self._changing:
            new, gone = self._differences(known)
            for topic, (text, is_sql) in new.items():
                self._control.subscribe(topic, text, is_sql)
                with self._lock:
                    self._topics[topic] = (text, is_sql)
                    self._by_pattern.add(topic)
                _log.info("group %s: topic %s matches", self._options.group, topic)
            for topic in gone:
                with self._lock:
                    self._by_pattern.discard(topic)
                    self._topics.pop(topic, None)
                self._control.unsubscribe(topic, True)

    def _differences(self, known: set[str]) -> tuple[dict[str, _Filter], list[str]]:
        """Return the topics to join by a pattern, and those of a pattern to leave."""
        with self._lock:
            if self._is_away:
                return {}, []
            new: dict[str, _Filter] = {}
            for pattern, wish in self._patterns.items():
                for topic in sorted(known):
                    if topic not in self._topics and pattern.fullmatch(topic):
                        new.setdefault(topic, wish)
            return new, sorted(self._by_pattern - known)

    def _look_apart(self) -> None:
        if self._patterns:
            self._start_apart("topics of a pattern could not be checked", self.look)

    def _start_apart(self, failure: str, function: Callable[[], None]) -> None:
        """Call a function in a separate thread, unless the last such call is still running."""

        def call() -> None:
            try:
                function()
            except (ClosedError, ForkError):
                return
            except Exception as error:  # noqa: BLE001 - the next call tries again
                log_error("group %s: %s", self.group, failure, error=error)

        last = self._apart.get(failure)
        if last is None or not last.is_alive():
            name = f"pyrmq-topics-{self.group}"
            self._apart[failure] = threading.Thread(target=call, name=name, daemon=True)
            self._apart[failure].start()

    def poll_begins(self) -> Future[Exception | None] | None:
        """Record a poll; join the group again if queues went back for lack of polls.

        Returns:
            What is done when all topics are joined again, or has the error; None: all are joined.
        """
        if self._is_elsewhere():
            return None
        with self._lock:
            self._polling += 1
            self._polled = monotonic()
            self._is_away = False
            if not self._left:
                return None
            if self._joining is None or self._joining.done():
                joining: Future[Exception | None] = Future()
                joining.set_running_or_notify_cancel()
                name = f"pyrmq-topics-{self.group}"
                arguments = (joining,)
                threading.Thread(target=self._join, args=arguments, name=name, daemon=True).start()
                self._joining = joining
            return self._joining

    def poll_ends(self) -> None:
        """Start waiting for the next poll."""
        if self._is_elsewhere():
            return
        with self._lock:
            self._polling -= 1
            self._polled = monotonic()

    def _join(self, joining: Future[Exception | None]) -> None:
        """Join the topics that were left; a poll raises the error, and the next one tries again."""
        failure: Exception | None = None
        with self._changing:
            while failure is None:
                with self._lock:
                    topic = min(self._left, default=None)
                    if topic is None:
                        # Under the lock: topics left from now on are joined by the next one.
                        joining.set_result(None)
                        break
                    wish = self._topics.get(topic)
                failure = self._joined(topic, wish)
        if failure is not None:
            joining.set_result(failure)
            return
        _log.info("group %s: polled again, joined", self._options.group)

    def _joined(self, topic: str, wish: _Filter | None) -> Exception | None:
        """Join a topic that was left; return why that failed."""
        failure: Exception | None = None
        if wish is not None:
            try:
                self._control.subscribe(topic, *wish)
            except Exception as error:  # noqa: BLE001 - a poll raises it
                failure = error
        with self._lock:
            if topic not in self._topics:
                # It was unsubscribed meanwhile.
                failure = None
            if failure is None:
                self._left.discard(topic)
        return failure

    def check(self) -> None:
        """Give the queues back in another thread if there was no poll for too long."""
        with self._lock:
            is_silent = self._silence() is not None
        if is_silent:
            self._start_apart("queues could not be given back", self._give_back)

    def _silence(self) -> float | None:
        """Return the seconds without a poll; None: the queues stay."""
        limit = self._options.max_poll_interval
        silent = monotonic() - self._polled
        if limit is None or self._polling or self._is_away or silent < limit or not self._topics:
            return None
        return silent

    def _give_back(self) -> None:
        with self._changing:
            with self._lock:
                silent = self._silence()
                if silent is None:
                    return
                self._is_away = True
                topics = [*self._topics]
            log_error(
                "group %s: not polled for %.1f s (`max_poll_interval` is %g s): its queues go to "
                "the other members until it is polled again; these also get the messages of the "
                "last poll",
                self._options.group,
                silent,
                self._options.max_poll_interval,
            )
            for topic in topics:
                with self._lock:
                    if not self._is_away:
                        # Polled again: keep the others.
                        return
                    self._left.add(topic)
                try:
                    self._control.unsubscribe(topic, True)
                except RmqError as error:
                    # It is gone nevertheless, and the others must go, too.
                    if isinstance(error, ClosedError | ForkError):
                        raise
                    log_error("group %s: leaving %s", self._options.group, topic, error=error)

    def _is_elsewhere(self) -> bool:
        """Whether this is a forked child: native calls raise there, and locks may be held."""
        return os.getpid() != self._pid
