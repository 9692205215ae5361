"""The metrics of a broker as a whole: its work, clients, resources and store."""

from __future__ import annotations

import os
from time import time
from typing import TYPE_CHECKING, Any

from pyrmq.server.metrics import Family, Histogram, gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.broker.server import Broker

NODE = ("cluster", "node_type", "node_id")
"""Apache's labels of a broker."""

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
    "subscription_conflicts": "Heartbeats of members that subscribe differently than their group.",
    "panics": "Panics of background work, and of requests on separate threads.",
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


def node_of(server: Broker) -> tuple[str, str, str]:
    """Return the values of the labels `NODE`."""
    options = server.options
    return (options.broker_cluster_name, "broker", options.broker_name)


def of_the_whole(server: Broker, seen: dict[str, Any]) -> Iterator[Family]:
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
    yield from _certificates(state)
    yield from _apache_counts(server, seen)
    yield from _revive(server, seen["revive"])
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


def _certificates(state: dict[str, Any]) -> Iterator[Family]:
    lists = state.get("revoked_certificates")
    if lists is not None:
        yield gauge(
            "pyrmq_broker_revocation_list_next_update_seconds",
            "When the list of revoked certificates is out of date, since 1970.",
            lists["next_update_ms"] / 1000,
        )


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are not wanted as paths
    except OSError:
        return 0


def _revive(server: Broker, queues: list[tuple[int, int, int]]) -> Iterator[Family]:
    """Lag of the task that makes popped messages visible again, by queue of the revive topic."""
    node = node_of(server)
    labels = [(*node, str(queue)) for queue, *_ in queues]
    for name, text, at in (
        ("rocketmq_pop_revive_lag", "Messages of a revive queue that are not processed.", 1),
        (
            "rocketmq_pop_revive_latency",
            "For how long a popped message should have been back, ms.",
            2,
        ),
    ):
        rows = [(one, float(queue[at])) for one, queue in zip(labels, queues, strict=True)]
        yield Family(name, "gauge", text, (*NODE, "queue_id"), rows)


def _apache_counts(server: Broker, seen: dict[str, Any]) -> Iterator[Family]:
    options = server.options
    node = node_of(server)
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
        yield Family(name, "gauge", text, NODE, [(node, float(value))])


def _store(server: Broker, state: dict[str, Any], seen: dict[str, Any]) -> Iterator[Family]:
    store, busy = state["store"], state["store"]["busy"]
    options = server.options
    node = node_of(server)
    size = store["max_physical_offset"] - store["min_physical_offset"]
    kept_ms = seen["oldest_ms"]
    local = (*NODE, "storage_type", "storage_medium")
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
    yield Family(
        "pyrmq_broker_flush_wait_seconds",
        "histogram",
        "How long each request that is answered after an fsync of the commit log waited for it.",
        (),
        [((), Histogram(*seen["flush_waits"]))],
    )
