"""The page's data about a cluster, as trees for JSON. Each call sends requests and may wait."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Lock
from typing import Any

from pyrmq import _core
from pyrmq._names import DLQ_PREFIX, RETRY_PREFIX
from pyrmq.admin import Admin
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.dashboard.lists import PAGE_ROWS, is_own, is_system, named, page_of, table
from pyrmq.dashboard.masters import Masters
from pyrmq.dashboard.messages import MessageReader, shown
from pyrmq.dashboard.sampling import Sampler
from pyrmq.errors import BrokerError, RmqError
from pyrmq.remoting import Client

Tree = dict[str, Any]

RANKED_GROUPS = 200
"""Up to this number of groups, the lag of all is requested, so that the page can rank them."""
_AT_ONCE = 8


class Cluster:
    """The data of a cluster for the page.

    Args:
        name_server: Its name servers.
        timeout: Seconds to wait for each answer.
    """

    def __init__(self, name_server: str, timeout: float) -> None:
        self.name_server = name_server
        self.admin = Admin(name_server=name_server, timeout=timeout)
        self.client = Client(timeout)
        self.timeout = timeout
        self.sampler = Sampler(self.admin, self.client, timeout)
        self.reader = MessageReader(self.admin, name_server)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "pyrmq-dashboard")
        self._masters = Masters(self.admin, self.client, self.sampler, timeout, self._threads)
        self._lock = Lock()
        self._counted: dict[str, tuple[float, int]] = {}

    def start(self) -> None:
        """Start sampling the brokers."""
        self.sampler.start()

    def forget(self) -> None:
        """Drop cached answers, after a change."""
        self._masters.forget()

    def close(self) -> None:
        """End every thread and connection."""
        self.sampler.stop()
        self._threads.shutdown(cancel_futures=True)
        self.client.close()
        self.admin.close()

    def overview(self) -> Tree:
        """Brokers with their rates, the last five minutes, and totals."""
        sample, history = self.sampler.latest()
        tree: Tree = {
            "name_server": self.name_server,
            "time_ms": sample.time_ms,
            "error": sample.error,
            "brokers": sample.brokers,
            "history": history,
        }
        if not sample.error:
            topics, _ = self._masters.topics()
            groups, _ = self._masters.groups()
            system = self._masters.system_names()
            tree["topics"] = sum(not is_system(topic, system) for topic in topics)
            tree["groups"] = sum(not is_own(group) for group in groups)
        return tree

    def topics(self, search: str, page: int, *, system: bool) -> Tree:
        """A page of topics, by name, with their sizes and rates."""
        known, errors = self._masters.topics()
        names = self._masters.system_names()
        wanted = [
            topic
            for topic in sorted(known)
            if search.lower() in topic.lower() and (system or not is_system(topic, names))
        ]
        chosen = page_of(wanted, page)
        held = dict(zip(chosen, self._threads.map(self._held, chosen), strict=True))
        rows = []
        for topic in chosen:
            configs = known[topic]
            brokers = sorted(configs)
            rows.append(
                {
                    "topic": topic,
                    "brokers": brokers,
                    "read_queues": sum(int(configs[one]["readQueueNums"]) for one in brokers),
                    "write_queues": sum(int(configs[one]["writeQueueNums"]) for one in brokers),
                    "perm": sorted({int(configs[one]["perm"]) for one in brokers}),
                    **held[topic],
                }
            )
        return {
            "total": len(wanted),
            "page": page,
            "page_rows": PAGE_ROWS,
            "rows": rows,
            "errors": errors,
        }

    def topic_names(self) -> list[str]:
        """The names of all topics but the system's own."""
        names = self._masters.system_names()
        return [topic for topic in self.admin.topics() if not is_system(topic, names)]

    def topic(self, topic: str) -> Tree:
        """A topic's queues, and the groups that consume it with their lag."""
        stats = self.admin.topic_stats(topic)
        queues = [
            {
                "broker": queue.broker,
                "queue": queue.queue_id,
                "first": offsets.first,
                "next": offsets.last,
                "updated_ms": offsets.updated_ms,
            }
            for queue, offsets in stats.items()
        ]
        groups = [group for group in self.admin.groups(topic) if not is_own(group)]
        lags = self._threads.map(lambda group: self._lag(group, topic), groups)
        rate = self._rate(f"topic {topic}", sum(offsets.last for offsets in stats.values()))
        return {"topic": topic, "rate": rate, "queues": queues, "groups": list(lags)}

    def groups(self, search: str, page: int) -> Tree:
        """A page of consumer groups: the largest lag first if there are not too many."""
        known, errors = self._masters.groups()
        names = [group for group in known if search.lower() in group.lower() and not is_own(group)]
        if len(names) > RANKED_GROUPS:
            rows = list(self._threads.map(self._group_row, page_of(names, page)))
            return table(names, page, rows, is_ranked=False) | {"errors": errors}

        def ranked() -> list[Tree]:
            found = list(self._threads.map(self._group_row, names))
            return sorted(found, key=lambda row: (-(row["lag"] or 0), row["group"]))

        rows = self._masters.kept(f"groups {search}", ranked)
        return table(names, page, page_of(rows, page), is_ranked=True) | {"errors": errors}

    def group(self, group: str) -> Tree:
        """A group's members, subscriptions, settings, and lag by queue."""
        described = self.admin.describe_group(group)
        lags = self.admin.consumer_lag(group)
        progress = self.admin.consumer_progress(group)
        queues = [
            {
                **named(queue),
                "committed": progress[queue].committed if queue in progress else None,
                "next": progress[queue].last if queue in progress else None,
                **asdict(lag),
            }
            # First deliveries before retries.
            for queue, lag in sorted(lags.items(), key=lambda one: one[0].topic.startswith("%"))
        ]
        return {**asdict(described), "queues": queues}

    def message(self, message_id: str, topic: str) -> Tree:
        """A message with its track and trace."""
        message = self.reader.message(message_id, topic or None)
        tree = shown(message)
        for name, request in (
            ("track", lambda: self.admin.track_message(message)),
            ("trace", lambda: self.admin.trace_message(message.message_id)),
        ):
            try:
                tree[name] = [asdict(each) for each in request()]
            except RmqError as error:
                # The message itself is worth showing.
                tree[f"{name}_error"] = str(error)
        return tree

    def dead_letter_groups(self) -> list[Tree]:
        """The groups that have dead letters, with their number."""
        known, _ = self._masters.topics()
        topics = [topic for topic in known if topic.startswith(DLQ_PREFIX)]
        held = self._threads.map(self._held, topics)
        rows = [
            {"group": topic.removeprefix(DLQ_PREFIX), **one}
            for topic, one in zip(topics, held, strict=True)
        ]
        return sorted(rows, key=lambda row: (-(row["messages"] or 0), row["group"]))

    def masters(self) -> dict[str, str]:
        """The address of each master by broker name."""
        return self._masters.masters()

    def _held(self, topic: str) -> Tree:
        for broker, why in self.sampler.silent().items():
            if self._masters.had(broker, topic):
                return {"messages": None, "rate": None, "updated_ms": 0, "error": why}
        try:
            stats = self.admin.topic_stats(topic)
        except RmqError as error:
            return {"messages": None, "rate": None, "updated_ms": 0, "error": str(error)}
        last = sum(offsets.last for offsets in stats.values())
        return {
            "messages": sum(offsets.last - offsets.first for offsets in stats.values()),
            "rate": self._rate(f"topic {topic}", last),
            "updated_ms": max((offsets.updated_ms for offsets in stats.values()), default=0),
        }

    def _rate(self, name: str, count: int) -> float | None:
        """The growth of a counter per second since it was last seen."""
        now = time.monotonic()
        with self._lock:
            at, before = self._counted.get(name, (now, count))
            # Two requests at once would divide by almost zero.
            if now - at > 1 or name not in self._counted:
                self._counted[name] = (now, count)
        passed = now - at
        return round((count - before) / passed, 1) if passed > 1 and count >= before else None

    def _lag(self, group: str, topic: str) -> Tree:
        lags = self.admin.consumer_lag(group, topic)
        return {
            "group": group,
            "lag": sum(lag.messages for lag in lags.values()),
            "seconds": max((lag.seconds for lag in lags.values()), default=0.0),
        }

    def _group_row(self, group: str) -> Tree:
        row: Tree = {"group": group, "lag": None, "topics": [], "members": None}
        silent = self.sampler.silent()
        if silent:
            # The others need no request then: a lag is a sum over all brokers.
            return row | {"error": "; ".join(silent.values())}
        try:
            progress = self.admin.consumer_progress(group)
            row["lag"] = sum(offset.lag for offset in progress.values())
            topics = {queue.topic for queue in progress}
            row["topics"] = sorted(one for one in topics if not one.startswith(RETRY_PREFIX))
        except RmqError as error:
            row["error"] = str(error)
        row["members"] = self._members(group)
        return row

    def _members(self, group: str) -> int | None:
        found: set[str] = set()
        for address in self._masters.masters_cached():
            try:
                code = RequestCode.GET_CONSUMER_CONNECTION_LIST
                fields = {"consumerGroup": group}
                answer = self.client.ask(address, code, fields, timeout=self.timeout)
            except BrokerError as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    continue
                return None
            except RmqError:
                return None
            tree: Any = _core.parse_json(answer.body or b"{}")
            found.update(one["clientId"] for one in tree.get("connectionSet") or [])
        return len(found)
