"""The topics of a polled consumer: by name, by pattern, and given back when nobody polls."""

from __future__ import annotations

import json
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq._client.values import name_servers
from pyrmq._names import INTERNAL_PREFIXES
from pyrmq.codes import RequestCode
from pyrmq.consumer.call import log_error
from pyrmq.consumer.callbacks import CallbackThread
from pyrmq.errors import ClosedError, ConfigError, ForkError, RmqError
from pyrmq.remoting import Client

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from pyrmq._client.options.consumer import ConsumerOptions
    from pyrmq._core import ConsumerControl

__all__ = ["Subscriptions"]

_log = logging.getLogger("pyrmq.consumer")

_CHECKS = 4
"""Looks at the time since the last poll in each interval."""

_Filter = tuple[str, bool]


def watched(
    subscriptions: Subscriptions, thread: CallbackThread | None, control: ConsumerControl
) -> CallbackThread:
    """Let the consumer's thread look after its subscriptions; start one if there is none."""
    if thread is None:
        thread = CallbackThread(control, subscriptions.group)
        subscriptions.serve(thread)
        thread.start()
    else:
        subscriptions.serve(thread)
    return thread


class Subscriptions:
    """What a polled consumer is subscribed to.

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
        # Guards the topics: the thread of the consumer changes them, too.
        self._lock = threading.Lock()
        self._polling = 0
        self._polled = monotonic()
        self._is_away = False
        self._looking: threading.Thread | None = None

    def serve(self, thread: CallbackThread) -> None:
        """Let a thread look for new topics, and for polls that do not come."""
        apart = self._options.allocator() is not None
        thread.repeat(self._options.rebalance, self._look_apart if apart else self.look)
        if self._options.max_poll_interval is not None:
            thread.repeat(self._options.max_poll_interval / _CHECKS, self.check)

    def filter_of(self, topic: str) -> _Filter | None:
        """Return the filter of a topic that is subscribed to; None for others."""
        with self._lock:
            return self._topics.get(topic)

    def undo(self, before: Mapping[str, _Filter | None]) -> None:
        """Restore the filters of topics, and leave those that had none; a failure is logged.

        A call for several topics that fails must not leave the group joined for some of them.
        """
        for topic, old in before.items():
            try:
                if old is None:
                    self.remove(topic)
                    self._control.unsubscribe(topic, False)
                else:
                    self._control.subscribe(topic, *old)
                    self.add(topic, *old)
            except RmqError:
                _log.exception(
                    "group %s: the subscription of %s is not undone", self._options.group, topic
                )

    def add(self, topic: str, text: str, is_sql: bool) -> None:  # noqa: FBT001 - as the native one
        """Note a topic that was subscribed to by name."""
        with self._lock:
            self._topics[topic] = (text, is_sql)
            self._by_pattern.discard(topic)

    def add_pattern(self, pattern: re.Pattern[str], text: str, is_sql: bool) -> None:  # noqa: FBT001
        """Subscribe to all topics whose whole name matches, now and when they appear.

        Raises:
            ConfigError: The name servers are only known by an address server.
            RmqError: No name server answered, or a broker refused.
        """
        if self._options.address_server is not None:
            raise ConfigError(
                "a pattern of topics needs `name_server`: an address server has no list of topics"
            )
        with self._lock:
            self._patterns[pattern] = (text, is_sql)
        self.look()

    def remove(self, topic: str) -> None:
        """Forget a topic."""
        with self._lock:
            self._topics.pop(topic, None)

    def look(self) -> None:
        """Subscribe to topics that match a pattern and are new, and leave those that are gone."""
        if not self._patterns:
            return
        known = self._all_topics()
        with self._lock:
            if self._is_away:
                return
            for pattern, (text, is_sql) in self._patterns.items():
                for topic in sorted(known):
                    if topic not in self._topics and pattern.fullmatch(topic):
                        self._control.subscribe(topic, text, is_sql)
                        self._topics[topic] = (text, is_sql)
                        self._by_pattern.add(topic)
                        _log.info("group %s: topic %s matches", self._options.group, topic)
            for topic in sorted(self._by_pattern - known):
                self._by_pattern.discard(topic)
                self._topics.pop(topic, None)
                self._control.unsubscribe(topic, True)

    def _look_apart(self) -> None:
        """Look in another thread: this one answers for the strategy that a new topic asks for."""
        if self._patterns and (self._looking is None or not self._looking.is_alive()):
            name = f"pyrmq-topics-{self.group}"
            self._looking = threading.Thread(target=self._look_logged, name=name, daemon=True)
            self._looking.start()

    def _look_logged(self) -> None:
        try:
            self.look()
        except (ClosedError, ForkError):
            return
        except Exception as error:  # noqa: BLE001 - the next look tries again
            log_error("group %s: topics of a pattern not looked at", self.group, error=error)

    def poll_begins(self) -> None:
        """Join the group again if queues were given back because nobody polled."""
        with self._lock:
            self._polling += 1
            self._polled = monotonic()
            if self._is_away:
                _log.info("group %s: polled again, joining", self._options.group)
                for topic, (text, is_sql) in self._topics.items():
                    self._control.subscribe(topic, text, is_sql)
                self._is_away = False

    def poll_ends(self) -> None:
        """Begin to wait for the next poll."""
        with self._lock:
            self._polling -= 1
            self._polled = monotonic()

    def check(self) -> None:
        """Give the queues back if nobody has polled for too long."""
        limit = self._options.max_poll_interval
        with self._lock:
            silent = monotonic() - self._polled
            if limit is None or self._polling or self._is_away or silent < limit:
                return
            if not self._topics:
                return
            self._is_away = True
            _log.error(
                "group %s: not polled for %.1f s (`max_poll_interval` is %g s): its queues go to "
                "the other members until it is polled again; the messages of the last poll come "
                "again there",
                self._options.group,
                silent,
                limit,
            )
            for topic in self._topics:
                self._control.unsubscribe(topic, True)

    def _all_topics(self) -> set[str]:
        """Ask for all topics of the namespace."""
        failure: RmqError | None = None
        with Client() as client:
            for address in name_servers(self._options.name_server):
                try:
                    answer = client.ask(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
                except RmqError as error:
                    failure = error
                    continue
                names: list[str] = json.loads(answer.body or b"{}").get("topicList", [])
                return {topic for name in names if (topic := self._own(name)) is not None}
        assert failure is not None
        raise failure

    def _own(self, name: str) -> str | None:
        """Return a topic as this consumer names it; None for others' and RocketMQ's own."""
        if name in _core.SYSTEM_TOPICS or name.startswith(INTERNAL_PREFIXES):
            return None
        if not self._options.namespace:
            return name
        prefix = f"{self._options.namespace}%"
        return name.removeprefix(prefix) if name.startswith(prefix) else None
