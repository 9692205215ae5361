"""Every option of ``format("rocketmq")`` with its default and meaning; docs/spark.md shows it."""

from __future__ import annotations

__all__ = ["KNOWN", "SINK"]

KNOWN: dict[str, tuple[str, str]] = {
    "nameServer": (
        "required",
        "name servers, `host:port;host:port`; without it NAMESRV_ADDR",
    ),
    "topic": ("required, or topicPattern", "comma list of topics; alias `subscribe`"),
    "topicPattern": (
        "",
        "regular expression that whole topic names match; alias `subscribePattern`",
    ),
    "includeSystemTopics": (
        "false",
        "topicPattern also takes system topics, retry topics and dead letters",
    ),
    "topicRefreshMs": ("30000", "how often topicPattern looks for new topics"),
    "brokers": (
        "",
        "comma list of brokers that must be there: a batch read, and the start of a stream, wait"
        " `timeoutMs` for them and then fail",
    ),
    "startingOffsets": (
        "latest (stream), earliest (batch)",
        "earliest, latest, group (what the consumer group has committed), or JSON by topic, broker,"
        " queue",
    ),
    "startingTimestamp": ("", "milliseconds or ISO 8601; beats startingOffsets"),
    "endingOffsets": ("latest", "batch only: latest, or JSON"),
    "endingTimestamp": ("", "batch only: milliseconds or ISO 8601; beats endingOffsets"),
    "tags": ("*", "`A || B`, filtered by the broker"),
    "maxOffsetsPerTrigger": (
        "1000000",
        "rows per micro-batch; 0 for no limit",
    ),
    "minOffsetsPerTrigger": ("0", "rows to wait for before a batch"),
    "maxTriggerDelay": ("15m", "but no longer than this"),
    "minPartitions": ("0", "cut queues until there are this many tasks"),
    "maxRecordsPerPartition": ("0", "cut queues so that no task spans more offsets"),
    "failOnDataLoss": ("true", "fail when unread messages are gone"),
    "onBadMessage": (
        "fail",
        "a message that cannot be read: fail, null (its body is NULL) or skip",
    ),
    "columns": ("", "comma list of columns instead of the default ones"),
    "limit": ("0", "batch only: the most rows to read"),
    "maxBatchBytes": ("8388608", "size of an Arrow batch"),
    "maxBatchRows": ("10000", "rows of an Arrow batch"),
    "pullsInFlight": ("8", "pull requests kept open per task"),
    "offsetRefreshMs": ("100", "oldest offsets that an idle stream may act on"),
    "timeoutMs": (
        "30000",
        "how long a batch read waits for a server, and any read for a queue that is shorter than"
        " it was, before the read fails",
    ),
    "awayMs": (
        "600000",
        "how long a stream goes on without a broker before it fails; 0 for ever",
    ),
    "readFrom": ("any", "master, slave, or any: the master, without one a slave"),
    "group": ("pyrmq-spark", "consumer group that pull requests name"),
    "commitToGroup": (
        "false",
        "a stream commits to `group` what it has read, one batch late, for tools that show lag",
    ),
}
"""Every option: default and meaning."""

SINK: dict[str, tuple[str, str]] = {
    "nameServer": ("required", "name servers, `host:port;host:port`; without it NAMESRV_ADDR"),
    "topic": ("column `topic`", "topic of all rows; beats the column"),
    "delivery": ("at-least-once", "at-least-once or exactly-once"),
    "onBadRow": ("fail", "fail, or a topic that gets the rows that cannot be messages"),
    "group": ("pyrmq-spark", "producer group"),
    "timeoutMs": ("30000", "how long a message may take to be stored, retries included"),
}
"""Every option of the sink: default and meaning."""
