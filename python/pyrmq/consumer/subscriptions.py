"""The topics of a polled consumer: by name, by pattern, and given back if it is not polled."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING

from pyrmq.consumer.call import log_error
from pyrmq.consumer.membership import all_topics
from pyrmq.errors import (
    ClosedError,
    ConfigError,
    ConnectionLost,
    ForkError,
    RequestTimeout,
    RmqError,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence

    from pyrmq._client.options.consumer import ConsumerOptions
    from pyrmq._core import ConsumerControl, _QueueRef
    from pyrmq.consumer.callbacks import CallbackThread

__all__ = ["SubscribeCall", "Subscriptions", "await_joined"]

_log = logging.getLogger("pyrmq.consumer")

_CHECKS = 4
"""Checks of the time since the last poll, per interval."""

_PAUSE_S = 0.001
"""Pause between two topics of a pattern: without it this thread would take its lock again first."""

_GONE_S = 90.0
"""A topic of a pattern is left if no name server has known it for this long. A restarted one knows
it again when its brokers next register: after at most 30 s, or 60 s with Apache's options."""

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


class SubscribeCall:
    """A call of `subscribe`, which an event loop may cancel while a thread makes it.

    Attributes:
        filter: The filter, always a new object: it marks what this call has subscribed to.
        is_cancelled: Nobody waits for it any more: it must join nothing.
        topic: The topic that it is joining.
        before: The filters that its topics had before; None: they were not subscribed to.
        pattern: The pattern that it adds.
        old: The filter that the pattern had before; None: it was not there.
    """

    def __init__(self, text: str, is_sql: bool) -> None:  # noqa: FBT001 - as the native one
        self.filter: _Filter = (text, is_sql)
        self.is_cancelled = False
        self.topic: str | None = None
        self.before: dict[str, _Filter | None] = {}
        self.pattern: re.Pattern[str] | None = None
        self.old: _Filter | None = None


class Subscriptions:
    """The subscriptions of a polled consumer.

    A separate thread joins topics, leaves them and joins them again: the consumer's callback
    thread must be free for the allocation strategy that a new topic needs.

    Args:
        control: The native consumer.
        options: Its options.
        queues_of: Returns the queues of a topic.
    """

    def __init__(
        self,
        control: ConsumerControl,
        options: ConsumerOptions,
        queues_of: Callable[[str], list[_QueueRef]],
    ) -> None:
        self._control = control
        self._queues_of = queues_of
        self._options = options
        self.group = options.group
        self._topics: dict[str, _Filter] = {}
        self._patterns: dict[re.Pattern[str], _Filter] = {}
        self._by_pattern: set[str] = set()
        # Topics of patterns that no name server knows, and since when. For `check_patterns` alone.
        self._missing: dict[str, float] = {}
        # Topics that calls of `unsubscribe` leave now: checks of patterns do not join them.
        self._unsubscribing: set[str] = set()
        # The topic of a pattern that is being joined, unless it is left meanwhile.
        self._matched: str | None = None
        # What was logged last of topics that match but could not be joined.
        self._failures: dict[str, type[RmqError]] = {}
        # Guards the fields. Never held during a request: event loops take it.
        self._lock = threading.Lock()
        # Held while requests join or leave topics. Taken before `_lock`. Reentrant: the handler of
        # a signal may subscribe while its thread does.
        self._changing = threading.RLock()
        self._polling = 0
        self._polled = monotonic()
        # The queues go back since there are no polls.
        self._is_away = False
        # Topics that were left for that reason, or are being left.
        self._left: set[str] = set()
        # Done when all of them are joined again, or with the error.
        self._joining: Future[Exception | None] | None = None
        self._threads: dict[str, threading.Thread] = {}
        self._pid = os.getpid()

    def serve(self, thread: CallbackThread) -> None:
        """Have the thread check regularly for new topics and for missing polls."""
        thread.repeat(self._options.rebalance, self._check_patterns_in_thread)
        if self._options.max_poll_interval is not None:
            thread.repeat(self._options.max_poll_interval / _CHECKS, self.check)

    def subscribe(self, topics: Sequence[str], call: SubscribeCall) -> None:
        """Subscribe to topics by name: to all, or, after a failure, to none of them.

        Calls run one after the other, so that none undoes what another has done, and no check of a
        pattern replaces a filter.

        Raises:
            RmqError: A topic could not be joined.
        """
        self._check_process()
        with self._changing:
            try:
                for topic in topics:
                    self._begin(call, topic)
                    self._control.subscribe(topic, *call.filter)
                    with self._lock:
                        self._topics[topic] = call.filter
                self._begin(call, None)
                with self._lock:
                    self._by_pattern.difference_update(topics)
            except BaseException:
                self.undo(call)
                raise

    def _begin(self, call: SubscribeCall, topic: str | None) -> None:
        """Go on with the next topic of a call, or end it.

        Raises:
            RmqError: The call was cancelled.
        """
        with self._lock:
            if call.is_cancelled:
                raise RmqError("the call of `subscribe` was cancelled")
            call.topic = topic
            if topic is not None:
                call.before.setdefault(topic, self._topics.get(topic))

    def cancel(self, call: SubscribeCall) -> None:
        """Have a call fail that has not ended yet."""
        if self._is_elsewhere():
            return
        with self._lock:
            call.is_cancelled = True
            if call.topic is not None:
                # It is waiting for servers; no other call joins topics meanwhile.
                self._control.cancel_subscribe(call.topic)

    def undo(self, call: SubscribeCall) -> None:
        """Restore the filters of a call's topics, and leave those that had none.

        A failure is logged. What others have changed since stays as it is.
        """
        if self._is_elsewhere():
            return
        with self._lock:
            if call.pattern is not None and self._patterns.get(call.pattern) is call.filter:
                del self._patterns[call.pattern]
                if call.old is not None:
                    self._patterns[call.pattern] = call.old
        with self._changing:
            with self._lock:
                mine = {topic for topic, one in self._topics.items() if one is call.filter}
                # Another call may have joined its topic since.
                topic, call.topic = call.topic, None
                if topic is not None and self._topics.get(topic) is call.before.get(topic):
                    mine.add(topic)
            for topic in sorted(mine):
                self._restore(topic, call.before.get(topic))

    def _restore(self, topic: str, old: _Filter | None) -> None:
        try:
            if old is None:
                self.remove(topic)
                self._control.unsubscribe(topic, False)
            else:
                self._control.subscribe(topic, *old)
                with self._lock:
                    self._topics[topic] = old
        except (ClosedError, ForkError):
            return
        except RmqError as error:
            text = "group %s: the subscription of %s is not undone"
            log_error(text, self.group, topic, error=error)

    def add_pattern(self, pattern: re.Pattern[str], call: SubscribeCall) -> None:
        """Subscribe to all topics whose whole name matches, now and when they appear.

        A topic that cannot be joined is logged, and tried again with each check. One that has
        the filter that the pattern had before keeps it until then.

        Raises:
            ConfigError: The name servers are known only through an address server.
            RmqError: No name server answered, or not one topic that matches could be joined. Then
                nothing has changed.
        """
        if self._options.address_server is not None:
            raise ConfigError(
                "a pattern of topics needs `name_server`: an address server has no list of topics"
            )
        self._check_process()
        with self._lock:
            call.pattern, call.old = pattern, self._patterns.get(pattern)
            self._patterns[pattern] = call.filter
        try:
            self._join_first(pattern, call)
        except BaseException:
            self.undo(call)
            raise

    def _join_first(self, pattern: re.Pattern[str], call: SubscribeCall) -> None:
        """Join the topics that match a new pattern; raise the first failure if none is joined."""
        failure = self._join_new(all_topics(self._options), [pattern], call)
        with self._lock:
            topics = filter(pattern.fullmatch, self._topics)
            has_one = any(self._has_its_filter(topic) for topic in topics)
        if failure is not None and not has_one:
            raise failure

    @contextmanager
    def unsubscribing(self, topic: str) -> Iterator[bool]:
        """Forget a topic that is left in the block: no check of a pattern joins it meanwhile.

        Yields:
            Whether it was subscribed to.
        """
        if self._is_elsewhere():
            yield False
            return
        with self._lock:
            self._unsubscribing.add(topic)
            if self._matched == topic:
                self._matched = None
        try:
            yield self.remove(topic)
        finally:
            with self._lock:
                self._unsubscribing.discard(topic)

    def remove(self, topic: str) -> bool:
        """Forget a topic. False: it was not subscribed to."""
        if self._is_elsewhere():
            return False
        with self._lock:
            self._left.discard(topic)
            return self._topics.pop(topic, None) is not None

    def check_patterns(self) -> None:
        """Join topics that match a pattern and do not have its filter, and leave those gone."""
        if not self._patterns:
            return
        try:
            known = all_topics(self._options)
            with self._lock:
                patterns = [*self._patterns]
            self._join_new(known, patterns)
            self._leave_gone(known)
        except RmqError:
            # Nothing is known of topics now: they count as missing from the next check on.
            self._missing.clear()
            raise

    def _join_new(
        self,
        known: set[str],
        patterns: Sequence[re.Pattern[str]],
        call: SubscribeCall | None = None,
    ) -> RmqError | None:
        """Join topics that match a pattern and do not have its filter.

        Returns why the first was not joined. A silent broker costs seconds for each topic. So once
        a topic has failed for that, others on all of its brokers wait for the next check.
        """
        first: RmqError | None = None
        silent: list[set[str]] = []
        for topic, pattern in self._new_topics(known, patterns).items():
            if silent:
                brokers = self._brokers_of(topic)
                if any(one <= brokers for one in silent):
                    continue
            failure = self._join_by_pattern(topic, pattern, call)
            first = first or failure
            if isinstance(failure, RequestTimeout | ConnectionLost):
                brokers = self._brokers_of(topic)
                if brokers:
                    silent.append(brokers)
        if call is not None:
            self._begin(call, None)
        return first

    def _brokers_of(self, topic: str) -> set[str]:
        try:
            return {broker for _, broker, _ in self._queues_of(topic)}
        except (ClosedError, ForkError):
            raise
        except RmqError:
            return set()

    def _join_by_pattern(
        self, topic: str, pattern: re.Pattern[str], call: SubscribeCall | None
    ) -> RmqError | None:
        """Join a topic; a failure is logged once, and returned."""
        with self._changing:
            with self._lock:
                subscription, old = self._patterns.get(pattern), self._topics.get(topic)
                is_left = topic in self._unsubscribing or self._is_away
                if subscription is None or self._has_its_filter(topic) or is_left:
                    # Meanwhile it was subscribed to by name or left, or the queues went back.
                    return None
                self._matched = topic
            if call is not None:
                self._begin(call, topic)
            try:
                self._control.subscribe(topic, *subscription)
            except (ClosedError, ForkError):
                raise
            except RmqError as error:
                if call is not None and call.is_cancelled:
                    raise
                if old is not None and self._matched is not None:
                    self._restore(topic, old)
                else:
                    # Brokers refuse a heartbeat as a whole: with this topic in it, for all others,
                    # too.
                    with suppress(RmqError):
                        self._control.unsubscribe(topic, False)
                if self._failures.get(topic) is not type(error):
                    text = (
                        "group %s: topic %s matches the pattern but could not be joined; "
                        "the next check retries"
                    )
                    log_error(text, self.group, topic, error=error)
                self._failures[topic] = type(error)
                if call is not None:
                    self._begin(call, None)
                return error
            self._failures.pop(topic, None)
            with self._lock:
                is_left = self._matched is None
                if not is_left:
                    self._topics[topic] = subscription
                    self._by_pattern.add(topic)
            if is_left:
                # Maybe before it was joined here. It still matches: the next check joins it.
                with suppress(RmqError):
                    self._control.unsubscribe(topic, False)
            if call is not None:
                # Others may join it from here on: no cancellation may end their calls.
                self._begin(call, None)
            if is_left:
                return None
        _log.info("group %s: topic %s matches", self.group, topic)
        # A caller that waits to subscribe by name goes first.
        sleep(_PAUSE_S)
        return None

    def _new_topics(
        self, known: set[str], patterns: Sequence[re.Pattern[str]]
    ) -> dict[str, re.Pattern[str]]:
        """Return the topics to join, new or with an old filter, with their patterns."""
        new: dict[str, re.Pattern[str]] = {}
        with self._lock:
            wanted = sorted(topic for topic in known if not self._has_its_filter(topic))
            for pattern in patterns:
                for topic in wanted:
                    if pattern.fullmatch(topic):
                        new.setdefault(topic, pattern)
        return new

    def _has_its_filter(self, topic: str) -> bool:
        """Whether a topic is subscribed to by name, or as a pattern says. Called under the lock."""
        subscription = self._topics.get(topic)
        if subscription is None or topic not in self._by_pattern:
            return subscription is not None
        patterns = self._patterns.items()
        return any(one == subscription and pattern.fullmatch(topic) for pattern, one in patterns)

    def _leave_gone(self, known: set[str]) -> None:
        """Leave topics of patterns that no name server has known for `_GONE_S`."""
        with self._lock:
            missing = set() if self._is_away else self._by_pattern - known
        if missing:
            missing -= all_topics(self._options, of_all=True)
        now = monotonic()
        self._missing = {topic: self._missing.get(topic, now) for topic in missing}
        for topic, since in self._missing.items():
            if now - since < _GONE_S:
                continue
            with self._changing:
                with self._lock:
                    if topic not in self._by_pattern:
                        # Meanwhile it was subscribed to by name.
                        continue
                    self._by_pattern.discard(topic)
                    self._topics.pop(topic, None)
                try:
                    self._control.unsubscribe(topic, True)
                except (ClosedError, ForkError):
                    raise
                except RmqError as error:
                    # The topic is left all the same.
                    log_error("group %s: leaving %s", self.group, topic, error=error)

    def _check_patterns_in_thread(self) -> None:
        if self._patterns:
            self._run_in_thread("topics of a pattern could not be checked", self.check_patterns)

    def _run_in_thread(self, failure: str, function: Callable[[], None]) -> None:
        """Call a function in a separate thread, unless the last such call is still running."""

        def call() -> None:
            try:
                function()
            except (ClosedError, ForkError):
                return
            except Exception as error:  # noqa: BLE001 - the next call tries again
                log_error("group %s: %s", self.group, failure, error=error)

        last = self._threads.get(failure)
        if last is None or not last.is_alive():
            name = f"pyrmq-topics-{self.group}"
            self._threads[failure] = threading.Thread(target=call, name=name, daemon=True)
            self._threads[failure].start()

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
                    subscription = self._topics.get(topic)
                failure = self._joined(topic, subscription)
        if failure is not None:
            joining.set_result(failure)
            return
        _log.info("group %s: polled again, joined", self._options.group)

    def _joined(self, topic: str, subscription: _Filter | None) -> Exception | None:
        """Join a topic that was left; return why that failed."""
        failure: Exception | None = None
        if subscription is not None:
            try:
                self._control.subscribe(topic, *subscription)
            except Exception as error:  # noqa: BLE001 - a poll raises it
                failure = error
        with self._lock:
            is_wanted = topic in self._topics
            if not is_wanted:
                failure = None
            if failure is None:
                self._left.discard(topic)
        if subscription is not None and not is_wanted:
            # It was unsubscribed from meanwhile, maybe before it was joined here.
            with suppress(RmqError):
                self._control.unsubscribe(topic, False)
        return failure

    def check(self) -> None:
        """Give the queues back in another thread if there was no poll for too long."""
        with self._lock:
            is_silent = self._silence() is not None
        if is_silent:
            self._run_in_thread("queues could not be given back", self._give_back)

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
                    # It is left nevertheless, and the others must be left, too.
                    if isinstance(error, ClosedError | ForkError):
                        raise
                    log_error("group %s: leaving %s", self._options.group, topic, error=error)

    def _check_process(self) -> None:
        """Raise ForkError in a forked child."""
        if self._is_elsewhere():
            self._control.paused()

    def _is_elsewhere(self) -> bool:
        """Whether this is a forked child: native calls raise there, and locks may be held."""
        return os.getpid() != self._pid
