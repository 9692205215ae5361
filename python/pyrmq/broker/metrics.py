"""The metrics of the broker.

Names that begin with `rocketmq_` are those of Apache's brokers from 5.1 on, with Apache's labels
and units, so that dashboards made for them work. Names that begin with `pyrmq_` are ours.
"""

from __future__ import annotations

import os
import threading
from time import time
from typing import TYPE_CHECKING, Any

from pyrmq.server.metrics import Family, Histogram, gauge

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from pyrmq.broker.server import Broker

Row = tuple[tuple[str, ...], float]

OTHERS = "_others"
"""The label value for everything that is not listed by name."""

_COUNTERS = {
    "messages_in": "Messages stored.",
    "bytes_in": "Bytes of messages stored.",
    "messages_out": "Messages sent to consumers.",
    "bytes_out": "Bytes of messages sent to consumers.",
    "puts_failed": "Sends that the store refused.",
    "pulls_found": "Pulls that found messages.",
    "pulls_missed": "Pulls that found no messages.",
    "sent_back": "Messages that consumers sent back for a retry.",
    "dead_letters": "Messages that went to a dead-letter topic.",
    "log_writes": "Writes to the commit log; a batch is one.",
    "keys_indexed": "Keys put into the key index.",
    "files_deleted": "Files that retention deleted.",
    "busy_held": "Sends refused because a write or an fsync took too long.",
    "busy_waited": "Sends refused because they had waited too long.",
    "busy_overload": "Sends refused because too many waited for the disk.",
}
_HELD = {
    "delayed": "Messages of delay levels that are not delivered yet.",
    "timer": "Timer messages that are not delivered yet.",
    "timer_late_seconds": "How late the timer delivers.",
    "half": "Open transactions.",
}


class Listed:
    """Chooses the names with series of their own: at most `limit`, the highest counts first.

    A listed name stays listed while it exists. The sum of the others never shrinks when one of
    them is listed or deleted: a counter that went down would look like a restart.

    Example:
        >>> listed = Listed()
        >>> listed.split({"a": 5, "b": 9, "c": 1}, limit=2)
        (['a', 'b'], ['c'])
    """

    def __init__(self) -> None:
        self._names: set[Hashable] = set()
        self._left: dict[Hashable, tuple[float, ...]] = {}
        self._gone: tuple[float, ...] = ()

    def split(self, weights: dict[Any, float], limit: int) -> tuple[list[Any], list[Any]]:
        """Return the names with series, and the others; both in the order of `weights`.

        Args:
            weights: the count of each existing name.
            limit: how many names may have series.
        """
        names = self._names & weights.keys()
        if len(names) > limit:
            names = set()
        free = sorted(weights.keys() - names, key=lambda name: -weights[name])
        names.update(free[: limit - len(names)])
        self._names = names
        ours = [name for name in weights if name in names]
        return ours, [name for name in weights if name not in names]

    def sums(self, others: Mapping[Any, tuple[float, ...]], width: int) -> tuple[float, ...]:
        """Add up the counters of the other names, including those that are gone.

        Args:
            others: the counters of each other name.
            width: how many counters each has.
        """
        gone = self._gone or (0.0,) * width
        for name, values in self._left.items():
            if name not in others:
                gone = tuple(map(sum, zip(gone, values, strict=True)))
        self._left, self._gone = dict(others), gone
        return tuple(map(sum, zip(gone, *others.values(), strict=True)))


class Figures:
    """Reads a broker's metrics; it remembers which names have series.

    Example:
        >>> list(Figures(broker).read())  # doctest: +SKIP
        [Family(name='pyrmq_broker_ready', ...), ...]
    """

    def __init__(self, server: Broker) -> None:
        self._server = server
        self._topics, self._groups = Listed(), Listed()
        # Guards both lists: several scrapes may run at once.
        self._lock = threading.Lock()

    def read(self) -> Iterator[Family]:
        """Every metric with its current values.

        Raises:
            ClosedError: the broker does not run.
        """
        server = self._server
        seen: dict[str, Any] = server.core.figures()
        limit = server.options.metrics_top
        yield from _whole(server, seen)
        with self._lock:
            families = [*self._of_topics(seen["topics"], limit), *self._of_groups(seen, limit)]
        yield from families

    def _node(self) -> tuple[str, str, str]:
        options = self._server.options
        return (options.broker_cluster_name, "broker", options.broker_name)

    def _of_topics(self, topics: Sequence[Any], limit: int) -> Iterator[Family]:
        named = {
            name: (is_system, ins, size, queues) for name, is_system, ins, size, queues in topics
        }
        ours, others = self._topics.split({name: of[1] for name, of in named.items()}, limit)
        counted = {name: (float(named[name][1]), float(named[name][2])) for name in others}
        ins, size = self._topics.sums(counted, 2)
        rows = [(name, *named[name]) for name in ours]
        added: list[tuple[str, bool, float, float]] = (
            [(OTHERS, False, ins, size)] if others or ins else []
        )
        node = self._node()
        labels = (*_NODE, "topic", "is_system")
        every = [*((name, system, ins, size) for name, system, ins, size, _ in rows), *added]
        for metric, text, at in (
            ("rocketmq_messages_in", "Messages stored, by topic.", 2),
            ("rocketmq_throughput_in", "Bytes of messages stored, by topic.", 3),
        ):
            counts: list[Row] = [
                ((*node, row[0], "true" if row[1] else "false"), float(row[at])) for row in every
            ]
            yield Family(metric, "counter", text, labels, counts)
        offsets: list[Row] = [
            ((row[0], str(queue)), next_offset)
            for row in rows
            if not row[1]
            for queue, (_, next_offset) in enumerate(row[4])
        ]
        yield Family(
            "pyrmq_broker_queue_next_offset",
            "gauge",
            "Offset of the next message of a queue.",
            ("topic", "queue"),
            offsets,
        )

    def _of_groups(self, seen: dict[str, Any], limit: int) -> Iterator[Family]:
        named = {pair: rest for pair, *rest in seen["groups"]}
        weights = {pair: sum(of[1]) + of[0][0] for pair, of in named.items()}
        ours, others = self._groups.split(weights, limit)
        sums = self._groups.sums({pair: tuple(map(float, named[pair][0])) for pair in others}, 4)
        columns = [[float(named[pair][0][at]) for pair in ours] for at in range(len(sums))]
        columns.append([float(sum(named[pair][1])) for pair in ours])
        columns.append([float(named[pair][2]) for pair in ours])
        rest = [
            *sums,
            float(sum(sum(named[pair][1]) for pair in others)),
            float(sum(named[pair][2] for pair in others)),
        ]
        node = self._node()
        labels = (*_NODE, "consumer_group", "topic", "is_retry")
        listed = [(*node, *pair, str(pair[1].startswith("%RETRY%")).lower()) for pair in ours]
        added = [(*node, OTHERS, OTHERS, "false")] if others or any(sums) else []
        for (metric, kind, text), column, other in zip(_OF_GROUP, columns, rest, strict=True):
            counts = [*zip(listed, column, strict=True), *((one, other) for one in added)]
            yield Family(metric, kind, text, labels, counts)
        ages = self._server.core.lag_ms(ours)
        text = "Age of the oldest message not consumed, ms."
        aged = [(one, float(age)) for one, age in zip(listed, ages, strict=True)]
        yield Family("rocketmq_consumer_lag_latency", "gauge", text, labels, aged)
        members = [((*node, group), float(count)) for group, count in seen["consumers"]]
        yield Family(
            "rocketmq_consumer_connections",
            "gauge",
            "Consumers connected, by group.",
            (*_NODE, "consumer_group"),
            sorted(members, key=lambda row: -row[1])[:limit],
        )
        yield from _lags({pair: named[pair][1] for pair in ours}, ages)


def _lags(lags: dict[tuple[str, str], list[int]], ages_ms: Sequence[int]) -> Iterator[Family]:
    """The lag in seconds, and that of each queue that has any."""
    yield Family(
        "pyrmq_broker_group_lag_seconds",
        "gauge",
        "Age of the oldest message not consumed.",
        ("group", "topic"),
        [(pair, age / 1000) for pair, age in zip(lags, ages_ms, strict=True)],
    )
    yield Family(
        "pyrmq_broker_queue_lag_messages",
        "gauge",
        "Messages of a queue stored but not consumed.",
        ("group", "topic", "queue"),
        [
            ((*pair, str(queue)), waiting)
            for pair, queues in lags.items()
            for queue, waiting in enumerate(queues)
            if waiting
        ],
    )


_NODE = ("cluster", "node_type", "node_id")
_OF_GROUP = (
    ("rocketmq_messages_out", "counter", "Messages sent to consumers, by group."),
    ("rocketmq_throughput_out", "counter", "Bytes of messages sent to consumers, by group."),
    (
        "pyrmq_broker_group_sent_back",
        "counter",
        "Messages sent back for a retry, by group.",
    ),
    (
        "rocketmq_send_to_dlq_messages",
        "counter",
        "Messages that went to a dead-letter topic, by group.",
    ),
    ("rocketmq_consumer_lag_messages", "gauge", "Messages stored but not consumed."),
    (
        "rocketmq_consumer_inflight_messages",
        "gauge",
        "Messages sent to consumers but not consumed.",
    ),
)


def _whole(server: Broker, seen: dict[str, Any]) -> Iterator[Family]:
    """The metrics of the broker as a whole."""
    from pyrmq.broker.processor.status import report

    state = report(server)
    store = state["store"]
    yield gauge("pyrmq_broker_ready", "1 while clients may be sent here.", int(server.ready()))
    yield gauge("pyrmq_broker_uptime_seconds", "Since the start.", state["uptime_ms"] / 1000)
    yield gauge(
        "pyrmq_broker_start_seconds", "Duration of the start, with recovery.", server.start_seconds
    )
    yield gauge(
        "pyrmq_broker_recovered_from_crash",
        "1 if the stop before this start was unclean.",
        int(store["recovered_from_crash"]),
    )
    for name, value in seen["counters"]:
        yield Family(f"pyrmq_broker_{name}", "counter", _COUNTERS[name], (), [((), value)])
    for name, value in seen["held"]:
        metric = name if name.endswith("_seconds") else f"{name}_messages"
        yield gauge(f"pyrmq_broker_{metric}", _HELD[name], value)
    yield from _clients(state)
    yield from _resources(state)
    yield from _apache_counts(server, seen)
    yield from _store(server, state, seen)


def _clients(state: dict[str, Any]) -> Iterator[Family]:
    yield gauge("pyrmq_broker_producers", "Producers connected.", state["producers"])
    yield gauge("pyrmq_broker_consumers", "Consumers connected.", state["consumers"])
    yield gauge("pyrmq_broker_held_pulls", "Pulls that wait for messages.", state["waiting_pulls"])
    yield gauge("pyrmq_broker_name_servers", "Configured name servers.", state["name_servers"])
    yield gauge(
        "pyrmq_broker_registered", "Name servers that know this broker.", state["registered"]
    )


def _resources(state: dict[str, Any]) -> Iterator[Family]:
    held, unfinished, memory = state["descriptors"], state["unfinished_requests"], state["memory"]
    yield gauge("pyrmq_broker_connections", "Open connections.", held["connections"])
    yield Family(
        "pyrmq_broker_connections_refused",
        "counter",
        "Connections refused because descriptors were reserved for the store.",
        (),
        [((), held["refused"])],
    )
    yield gauge("pyrmq_broker_descriptors", "Descriptors that the process has open.", _open_files())
    yield gauge(
        "pyrmq_broker_descriptors_limit", "Descriptors that it may have open.", held["limit"]
    )
    yield gauge(
        "pyrmq_broker_unfinished_request_bytes",
        "Memory of requests that have not arrived completely.",
        unfinished["bytes"],
    )
    for name, key, text in (
        ("pyrmq_broker_memory_resident_bytes", "resident_bytes", "Resident memory."),
        ("pyrmq_broker_memory_limit_bytes", "limit_bytes", "Memory limit of its control group."),
    ):
        if memory[key] is not None:
            yield gauge(name, text, memory[key])


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are not wanted as paths
    except OSError:
        return 0


def _apache_counts(server: Broker, seen: dict[str, Any]) -> Iterator[Family]:
    options = server.options
    node = (options.broker_cluster_name, "broker", options.broker_name)
    for name, text, value in (
        (
            "rocketmq_broker_permission",
            "Permission bits: 4 read, 2 write.",
            options.broker_permission,
        ),
        ("rocketmq_topic_number", "Topics.", len(seen["topics"])),
        (
            "rocketmq_consumer_group_number",
            "Groups that consume.",
            len({pair[0] for pair, *_ in seen["groups"]}),
        ),
    ):
        yield Family(name, "gauge", text, _NODE, [(node, float(value))])


def _store(server: Broker, state: dict[str, Any], seen: dict[str, Any]) -> Iterator[Family]:
    store, busy = state["store"], state["store"]["busy"]
    options = server.options
    node = (options.broker_cluster_name, "broker", options.broker_name)
    size = store["max_physical_offset"] - store["min_physical_offset"]
    kept_ms = seen["oldest_ms"]
    local = (*_NODE, "storage_type", "storage_medium")
    for name, text, value in (
        ("rocketmq_storage_size", "Bytes of the commit log.", size),
        (
            "rocketmq_storage_flush_behind_bytes",
            "Bytes stored but not flushed.",
            store["max_physical_offset"] - store["flushed_offset"],
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes stored but not yet readable or indexed.",
            store["dispatch_behind_bytes"],
        ),
        (
            "rocketmq_storage_message_reserve_time",
            "Age of the oldest message, ms.",
            max(0, int(time() * 1000) - kept_ms) if kept_ms >= 0 else 0,
        ),
    ):
        yield Family(name, "gauge", text, local, [((*node, "local", "disk"), float(value))])
    yield gauge("pyrmq_broker_store_max_bytes", "`storeMaxBytes`.", options.store_max_bytes)
    yield gauge("pyrmq_broker_store_queues", "Consume queues.", store["queues"])
    yield gauge("pyrmq_broker_disk_used_ratio", "Used share of the disk.", store["disk_ratio"])
    yield gauge("pyrmq_broker_disk_free_bytes", "Free bytes of the disk.", store["disk_free_bytes"])
    yield gauge(
        "pyrmq_broker_store_read_only",
        "1 while nothing can be stored.",
        int(store["read_only"] is not None),
    )
    yield gauge(
        "pyrmq_broker_sends_waiting",
        "Sends that wait for another send or for the disk.",
        busy["waiting_for_lock"] + busy["waiting_for_disk"],
    )
    yield gauge(
        "pyrmq_broker_send_oldest_wait_seconds",
        "How long the first waiting send has waited.",
        busy["oldest_ms"] / 1000,
    )
    yield Family(
        "pyrmq_broker_fsync_seconds",
        "histogram",
        "Duration of fsyncs: of the commit log, or of all consume queues together.",
        ("files",),
        [((name,), Histogram(buckets, us)) for name, buckets, us in seen["flushes"]],
    )
