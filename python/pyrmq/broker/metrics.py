"""The metrics of the broker: topics and groups here, the broker as a whole in state_metrics.py.

Names that begin with `rocketmq_` are those of Apache's brokers from 5.1 on, with Apache's labels
and units, so that dashboards made for them work. Names that begin with `pyrmq_` are ours.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pyrmq._names import RETRY_PREFIX
from pyrmq.broker.state_metrics import NODE, node_of, of_the_whole
from pyrmq.server.metrics import Family

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from pyrmq.broker.server import Broker

Row = tuple[tuple[str, ...], float]

OTHERS = "_others"
"""The label value for everything that is not listed by name."""


class Listed:
    """Chooses the names with their own series: at most `limit`, the highest counts first.

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
        """Add up the counters of the other names, including those that no longer exist.

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
        yield from of_the_whole(server, seen)
        with self._lock:
            families = [*self._of_topics(seen["topics"], limit), *self._of_groups(seen, limit)]
        yield from families

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
        node = node_of(self._server)
        labels = (*NODE, "topic", "is_system")
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
        node = node_of(self._server)
        labels = (*NODE, "consumer_group", "topic", "is_retry")
        listed = [(*node, *pair, str(pair[1].startswith(RETRY_PREFIX)).lower()) for pair in ours]
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
            (*NODE, "consumer_group"),
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
