"""The topics and groups of a cluster's masters, cached for a moment."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._names import reply_topic
from pyrmq.codes import RequestCode
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from pyrmq.admin import Admin
    from pyrmq.dashboard.sampling import Sampler
    from pyrmq.remoting import Client

Tree = dict[str, Any]

_CACHE_SECONDS = 2.5
_MAX_KEPT = 200


class Masters:
    """Sends requests to all masters at once, and caches the answers briefly.

    Args:
        admin: Knows the cluster.
        client: Sends requests to its brokers.
        sampler: Knows which of them are silent.
        timeout: Seconds to wait for each answer.
        threads: Threads for the requests.
    """

    def __init__(
        self,
        admin: Admin,
        client: Client,
        sampler: Sampler,
        timeout: float,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._admin = admin
        self._client = client
        self._sampler = sampler
        self._timeout = timeout
        self._threads = threads
        self._lock = Lock()
        self._cached: dict[str, tuple[float, Any]] = {}
        # The topics that each master had when it last answered.
        self._known: dict[str, frozenset[str]] = {}

    def forget(self) -> None:
        """Drop the cache, after a change."""
        with self._lock:
            self._cached.clear()

    def topics(self) -> tuple[dict[str, dict[str, Tree]], dict[str, str]]:
        """The settings of each topic by broker, and the failures of brokers."""

        def fetch() -> tuple[dict[str, dict[str, Tree]], dict[str, str]]:
            tables, errors = self._tables(RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
            found: dict[str, dict[str, Tree]] = {}
            for broker, topics in tables.items():
                self._known[broker] = frozenset(topics)
                for topic, config in topics.items():
                    found.setdefault(topic, {})[broker] = config
            return found, errors

        kept: tuple[dict[str, dict[str, Tree]], dict[str, str]] = self.kept("topics", fetch)
        return kept

    def groups(self) -> tuple[list[str], dict[str, str]]:
        """The names of all groups, and the failures of brokers."""

        def fetch() -> tuple[list[str], dict[str, str]]:
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            tables, errors = self._tables(code, "subscriptionGroupTable")
            return sorted(set().union(*tables.values())), errors

        kept: tuple[list[str], dict[str, str]] = self.kept("groups", fetch)
        return kept

    def _tables(self, code: int, member: str) -> tuple[dict[str, Tree], dict[str, str]]:
        """What each master has in a member of its answer; of those that have not answered, why.

        One silent broker must not take the others away: it gets no request before the sampler has
        had an answer from it.
        """
        masters = self.masters()
        errors = {name: why for name, why in self._sampler.silent().items() if name in masters}

        def fetch(name: str) -> Tree | RmqError:
            try:
                answer = self._client.ask(masters[name], code, timeout=self._timeout)
            except RmqError as error:
                return error
            tree: Any = _core.parse_json(answer.body or b"{}")
            return tree.get(member) or {}

        requested = [name for name in masters if name not in errors]
        found: dict[str, Tree] = {}
        for name, answer in zip(requested, self._threads.map(fetch, requested), strict=True):
            if isinstance(answer, RmqError):
                errors[name] = str(answer)
            else:
                found[name] = answer
        return found, errors

    def system_names(self) -> frozenset[str]:
        """The names of topics that are the cluster's own."""

        def fetch() -> frozenset[str]:
            clusters = self._admin.cluster()
            brokers = {one.name for members in clusters.values() for one in members}
            replies = {reply_topic(cluster) for cluster in clusters}
            return frozenset({*clusters, *replies, *brokers, *_core.SYSTEM_TOPICS})

        kept: frozenset[str] = self.kept("system", fetch)
        return kept

    def masters(self) -> dict[str, str]:
        """The address of each master by broker name."""
        return {
            one.name: one.master
            for brokers in self._admin.cluster().values()
            for one in brokers
            if one.master is not None
        }

    def masters_cached(self) -> list[str]:
        """The masters' addresses, as they were a moment ago."""
        found: dict[str, str] = self.kept("masters", self.masters)
        return list(found.values())

    def had(self, broker: str, topic: str) -> bool:
        """Whether a broker had a topic when it last answered."""
        return topic in self._known.get(broker, ())

    def kept(self, name: str, fetch: Callable[[], Any]) -> Any:  # noqa: ANN401 - what `fetch` returns
        """A cached answer, so that several browsers cost the cluster no more than one."""
        now = time.monotonic()
        with self._lock:
            at, value = self._cached.get(name, (-_CACHE_SECONDS, None))
        if now - at < _CACHE_SECONDS:
            return value
        value = fetch()
        with self._lock:
            if len(self._cached) > _MAX_KEPT:
                self._cached.clear()
            self._cached[name] = (now, value)
        return value
