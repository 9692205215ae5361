"""Every option of ``format("rocketmq")`` with its default and meaning; docs/spark.md shows it."""

from __future__ import annotations

__all__ = ["KNOWN", "LOG", "SECURITY", "SINK"]

SECURITY: dict[str, tuple[str, str]] = {
    "credentials": (
        "",
        "path of a credentials file on driver and executors; without it PYRMQ_CREDENTIALS",
    ),
    "accessKey": ("", "the user; instead of credentials, with secretKey"),
    "secretKey": ("", "its secret, which Spark ships to executors; prefer credentials"),
    "tls": ("false", "connect over TLS; without it the credentials file or PYRMQ_TLS decides"),
    "tls.trust": ("", "path of the file of trusted authorities; implies tls"),
    "tls.serverName": ("", "the name that each server's certificate must have; implies tls"),
}
"""Credentials and TLS of both reads and writes: default and meaning."""

KNOWN: dict[str, tuple[str, str]] = {
    "nameServer": (
        "required",
        "name servers, `host:port;host:port`; without it NAMESRV_ADDR",
    ),
    "topic": ("required, or topicPattern", "comma-separated list of topics; alias `subscribe`"),
    "topicPattern": (
        "",
        "regular expression that whole topic names match; alias `subscribePattern`",
    ),
    "queues": (
        "",
        "instead of topic: JSON by topic and broker, such as"
        ' `{"orders":{"broker-a":[0,1]}}`; alias `assign`',
    ),
    "namespace": ("", "namespace of topics and group; column `topic` is without it"),
    "includeSystemTopics": (
        "false",
        "topicPattern also takes system topics, retry topics and dead letters",
    ),
    "topicRefreshMs": ("30000", "how often topicPattern checks for new topics"),
    "brokers": (
        "",
        "comma-separated list of brokers that must answer: a batch read, and the start of a stream,"
        " wait `timeoutMs` for them and then fail",
    ),
    "startingOffsets": (
        "latest (stream), earliest (batch)",
        "earliest, latest, group (what the consumer group has committed), or JSON by topic, broker,"
        " queue",
    ),
    "startingTimestamp": ("", "milliseconds or ISO 8601; overrides startingOffsets"),
    "startingOffsetsByTimestamp": (
        "",
        "a time in milliseconds for every queue: JSON by topic, broker, queue",
    ),
    "startingOffsetsByTimestampStrategy": (
        "latest",
        "when nothing was stored since the starting time: latest, the queue's end, or error",
    ),
    "endingOffsets": ("latest", "batch only: latest, or JSON"),
    "endingTimestamp": ("", "batch only: milliseconds or ISO 8601; overrides endingOffsets"),
    "endingOffsetsByTimestamp": ("", "batch only: as startingOffsetsByTimestamp"),
    "tags": ("*", "`A || B`, filtered by the broker"),
    "sql": (
        "",
        "a SQL92 condition on properties, such as `price > 10`, evaluated by the broker, which"
        " needs `enablePropertyFilter`; excludes tags",
    ),
    "maxOffsetsPerTrigger": (
        "1000000",
        "rows per micro-batch; 0 for no limit",
    ),
    "maxBytesPerTrigger": (
        "0",
        "bytes that a micro-batch takes in the brokers' logs, estimated from samples; 0 for no"
        " limit",
    ),
    "minOffsetsPerTrigger": ("0", "rows to wait for before a batch"),
    "maxTriggerDelay": ("15m", "longest wait for `minOffsetsPerTrigger`"),
    "minPartitions": ("0", "cut queues until there are this many tasks"),
    "maxRecordsPerPartition": ("0", "cut queues so that no task spans more offsets"),
    "failOnDataLoss": ("true", "fail when unread messages are gone"),
    "onBadMessage": (
        "fail",
        "a message that cannot be read: fail, null (its body is NULL) or skip",
    ),
    "layout": ("rocketmq", "rocketmq, or kafka: the columns of Spark's Kafka source"),
    "includeHeaders": ("false", "layout=kafka only: also the column headers"),
    "columns": ("", "comma-separated list of columns instead of the default ones"),
    "limit": ("0", "batch only: maximum number of rows to read"),
    "maxBatchBytes": ("8388608", "size of an Arrow batch"),
    "maxBatchRows": ("10000", "rows of an Arrow batch"),
    "pullsInFlight": ("8", "pull requests kept open per task"),
    "offsetRefreshMs": ("100", "maximum age of the offsets that an idle stream uses"),
    "timeoutMs": (
        "30000",
        "how long a batch read waits for a server, and any read for a queue that is shorter than"
        " before, until the read fails",
    ),
    "awayMs": (
        "600000",
        "how long a stream goes on without a broker before it fails; 0: no limit",
    ),
    "readFrom": ("any", "master, slave, or any: the master, without one a slave"),
    **SECURITY,
    "group": ("pyrmq-spark", "consumer group that pull requests name"),
    "commitToGroup": (
        "false",
        "a stream commits to `group` what it has read, one batch late, for tools that show lag",
    ),
}
"""Every option: default and meaning."""

LOG: dict[str, tuple[str, str]] = {
    "topic": ("all but system topics", "comma-separated list of topics; alias `subscribe`"),
    "topicPattern": (
        "",
        "regular expression that whole topic names match; alias `subscribePattern`",
    ),
    "includeSystemTopics": (
        "false",
        "topicPattern, and a read of all topics, also takes system topics, retry topics and dead"
        " letters",
    ),
    "startingTimestamp": ("", "only messages stored since: milliseconds or ISO 8601"),
    "endingTimestamp": ("", "batch only: messages stored before this time"),
    "startingOffsets": (
        "latest (stream), earliest (batch)",
        "earliest, latest (stream), or JSON by topic, broker, queue: only these queues, from there",
    ),
    "endingOffsets": ("latest", "batch only: latest, or JSON as for startingOffsets"),
    "tags": ("*", "`A || B`"),
    "brokerName": ("", "the broker's name, for column `brokerName` (else NULL) and for offsets"),
    "columns": ("", "comma-separated list of columns instead of the default ones"),
    "limit": ("0", "batch only: maximum number of rows to read"),
    "onCorrupt": (
        "fail",
        "if a record cannot be read: fail, or skip to the next valid record with a warning",
    ),
    "checkCRC": ("true", "compare bodies with their checksums; a wrong one is corruption"),
    "onBadMessage": (
        "fail",
        "a message whose body cannot be decompressed: fail, null (its body is NULL) or skip",
    ),
    "failOnDataLoss": (
        "true",
        "fail when retention deletes a file before it is read, or when a stream finds another log",
    ),
    "maxPartitionBytes": ("67108864", "bytes of the log that one task reads"),
    "maxOffsetsPerTrigger": ("1000000", "stream: records of a micro-batch, of all topics; 0: all"),
    "maxBatchBytes": ("8388608", "size of an Arrow batch"),
    "maxBatchRows": ("10000", "rows of an Arrow batch"),
    "offsetRefreshMs": ("100", "stream: how often an idle stream checks for new records"),
}
"""Every option of a read of log files: default and meaning."""

SINK: dict[str, tuple[str, str]] = {
    "nameServer": ("required", "name servers, `host:port;host:port`; without it NAMESRV_ADDR"),
    "topic": ("column `topic`", "topic of all rows; overrides the column"),
    "namespace": ("", "namespace of topics and group"),
    "layout": ("rocketmq", "rocketmq, or kafka: the columns of Spark's Kafka sink"),
    "includeHeaders": (
        "false",
        "layout=kafka only, accepted for compatibility: a column headers is always sent",
    ),
    "delivery": ("at-least-once", "at-least-once or exactly-once"),
    "onBadRow": ("fail", "fail, or a topic for rows that cannot be messages"),
    "group": ("pyrmq-spark", "producer group"),
    "timeoutMs": ("30000", "how long a message may take to be stored, retries included"),
    **SECURITY,
}
"""Every option of the sink: default and meaning."""
