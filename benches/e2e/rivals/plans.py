"""The rows of `--rows rivals`: which load of ours is compared with which of theirs."""

from __future__ import annotations

from dataclasses import dataclass

MILLION = 1_000_000


@dataclass(frozen=True)
class Plan:
    """A row to measure: its loads and its target.

    Attributes:
        name: for `--rows`.
        what: text of the row.
        our_load: a load of `load.py`.
        our_server: name of its server.
        rival_load: the rival's load; a name that begins with `java` is the Java client's.
        rival_server: name of the rival's server.
        count: messages of a turn.
        target: required ratio.
        size: bytes of a body.
        less: the figure is a time.
        backlog: both sides first store `count` messages, which the loads read.
        memory: state of the page cache before each turn, as in `Row`.
    """

    name: str
    what: str
    our_load: str
    our_server: str
    rival_load: str
    rival_server: str
    count: int
    target: str
    size: int = 128
    less: bool = False
    backlog: bool = False
    memory: str = ""

    @property
    def is_open_loop(self) -> bool:
        """Return whether its loads send on a schedule."""
        return "latency" in self.our_load

    @property
    def servers(self) -> set[str]:
        """Return the names of the servers that it needs."""
        return {self.our_server, self.rival_server}


PLANS = (
    Plan("produce", "produce, 128 B / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", MILLION, ">= 2.2"),
    Plan("produce1k", "produce, 1 KiB / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", 300_000, ">= 2", size=1024),
    Plan("produce16k", "produce, 16 KiB, not compressed / confluent-kafka", "pyrmq produce plain",
         "ours", "confluent produce", "kafka", 60_000, "", size=16 * 1024),
    Plan("produce256k", "produce, 256 KiB, not compressed / confluent-kafka", "pyrmq produce plain",
         "ours", "confluent produce", "kafka", 4_000, "", size=256 * 1024),
    Plan("lone", "lone send, p50 / confluent produce + flush", "pyrmq lone send", "ours",
         "confluent lone send", "kafka", 3_000, ">= 2", less=True),
    Plan("groups", "asyncio, groups of 1,000 / AIOProducer", "pyrmq groups", "ours",
         "confluent groups", "kafka", 200_000, ">= 3"),
    Plan("tasks-aiokafka", "asyncio, 1,000 tasks / aiokafka send_and_wait", "pyrmq tasks", "ours",
         "aiokafka tasks", "kafka", 100_000, ">= 5"),
    Plan("tasks-nats", "asyncio, 1,000 tasks / nats-py publish (unconfirmed)", "pyrmq tasks",
         "ours", "nats tasks", "nats", 100_000, ">= 5"),
    Plan("tasks-jetstream", "asyncio, 1,000 tasks / nats-py JetStream publish", "pyrmq tasks",
         "ours", "jetstream tasks", "nats", 50_000, ">= 5"),
    Plan("single", "single frames in flight / Java async on the Java broker",
         "pyrmq single frames", "ours", "java async", "apache", 200_000, ">= 10"),
    Plan("java-threads", "on the Java broker: 64 threads / Java, 64 threads", "pyrmq 64 threads",
         "apache", "java sync", "apache", 100_000, ">= 1.3"),
    Plan("java-futures", "on the Java broker: send_async / Java async", "pyrmq futures",
         "apache", "java async", "apache", 200_000, ">= 1.3"),
    Plan("java-single", "on the Java broker: single frames in flight / Java async",
         "pyrmq single frames", "apache", "java async", "apache", 200_000, ">= 1.3"),
    Plan("batches", "`poll_batch` / confluent `consume(1000)`", "pyrmq batches", "ours",
         "confluent consume", "kafka", 5 * MILLION, ">= 9", backlog=True),
    Plan("objects", "an object each, body read / confluent `consume(1000)`", "pyrmq objects",
         "ours", "confluent consume", "kafka", 5 * MILLION, ">= 5", backlog=True),
    Plan("push", "push, a function per message / confluent poll loop", "pyrmq push", "ours",
         "confluent poll", "kafka", MILLION, ">= 2", backlog=True),
    Plan("push32", "push, a function per 32 messages / confluent poll loop", "pyrmq push batches",
         "ours", "confluent poll", "kafka", MILLION, ">= 5", backlog=True),
    Plan("aio-batches", "aio `poll_batch` / aiokafka `getmany`", "pyrmq aio batches", "ours",
         "aiokafka getmany", "kafka", MILLION, ">= 5", backlog=True),
    Plan("fetch-nats", "aio `poll_batch` / nats-py JetStream `fetch(1000)`", "pyrmq aio batches",
         "ours", "nats fetch", "nats", 200_000, ">= 5", backlog=True),
    Plan("latency", "send to receive at 200 a second, p50 / confluent-kafka", "pyrmq latency",
         "ours", "confluent latency", "kafka", 1000, "", less=True),
    Plan("latency-java", "send to receive at 200 a second, p50 / Java on Java", "pyrmq latency",
         "ours", "java latency", "apache", 1000, ">= 2, p50 <= 150 µs", less=True),
    Plan("latency-java-p99", "send to receive at 200 a second, p99 / Java on Java",
         "pyrmq latency p99", "ours", "java latency p99", "apache", 1000, ">= 2", less=True),
    Plan("latency-pop", "send to receive at 200 a second by POP, p50 / Java on Java",
         "pyrmq pop latency", "ours", "java latency pop", "apache", 1000, ">= 2", less=True),
    Plan("push-java", "on the Java broker: a function per message / Java push", "pyrmq push",
         "apache", "java push", "apache", 400_000, ">= 1.3", backlog=True),
)  # fmt: skip

MEMORY_PLANS = (
    Plan("produce-fresh", "produce, 128 B / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", 5 * MILLION, "reported", memory="fresh"),
    Plan("produce-held", "produce, 128 B / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", 5 * MILLION, "reported", memory="held"),
    Plan("produce1k-fresh", "produce, 1 KiB / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", MILLION, "reported", size=1024, memory="fresh"),
    Plan("produce1k-held", "produce, 1 KiB / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", MILLION, "reported", size=1024, memory="held"),
)  # fmt: skip
"""Rows of `page-cache`: each load with both states of the memory that it writes to."""

SECURITY_PLANS = (
    Plan("tls-produce", "produce, 128 B, over TLS / plain", "pyrmq produce", "tls",
         "pyrmq produce", "ours", MILLION, ">= 0.6"),
    Plan("tls-single", "single frames in flight, over TLS / plain", "pyrmq single frames", "tls",
         "pyrmq single frames", "ours", 200_000, ">= 0.7"),
    Plan("tls-lone", "lone send, p50, over TLS / plain", "pyrmq lone send", "tls",
         "pyrmq lone send", "ours", 3_000, ">= 0.77", less=True),
    Plan("signed-produce", "produce, 128 B, signed and checked / not", "pyrmq produce", "signed",
         "pyrmq produce", "ours", MILLION, ">= 0.85"),
    Plan("signed-single", "single frames in flight, signed and checked / not",
         "pyrmq single frames", "signed", "pyrmq single frames", "ours", 200_000, ">= 0.85"),
)  # fmt: skip
