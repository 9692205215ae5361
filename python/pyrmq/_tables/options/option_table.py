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
    "tls": ("false", "connect through TLS; without it the credentials file or PYRMQ_TLS decide"),
    "tls.trust": ("", "path of the file of trusted authorities; implies tls"),
    "tls.serverName": ("", "the name that each server's certificate must have; implies tls"),
}
"""In whose name, and how, both reads and writes connect: default and meaning."""

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
    "queues": (
        "",
        'instead of topic: JSON by topic and broker, as `{"orders":{"broker-a":[0,1]}}`; alias'
        " `assign`",
    ),
    "namespace": ("", "namespace of topics and group; column `topic` is without it"),
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
    "startingOffsetsByTimestamp": (
        "",
        "a time in milliseconds for every queue: JSON by topic, broker, queue",
    ),
    "startingOffsetsByTimestampStrategy": (
        "latest",
        "when nothing was stored since the starting time: latest, the queue's end, or error",
    ),
    "endingOffsets": ("latest", "batch only: latest, or JSON"),
    "endingTimestamp": ("", "batch only: milliseconds or ISO 8601; beats endingOffsets"),
    "endingOffsetsByTimestamp": ("", "batch only: as startingOffsetsByTimestamp"),
    "tags": ("*", "`A || B`, filtered by the broker"),
    "sql": (
        "",
        "a SQL92 condition on properties, as `price > 10`, evaluated by the broker, which needs"
        " `enablePropertyFilter`; excludes tags",
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
    **SECURITY,
    "group": ("pyrmq-spark", "consumer group that pull requests name"),
    "commitToGroup": (
        "false",
        "a stream commits to `group` what it has read, one batch late, for tools that show lag",
    ),
}
"""Every option: default and meaning."""

LOG: dict[str, tuple[str, str]] = {
    "topic": ("all but system topics", "comma list of topics; alias `subscribe`"),
    "topicPattern": (
        "",
        "regular expression that whole topic names match; alias `subscribePattern`",
    ),
    "includeSystemTopics": (
        "false",
        "topicPattern, and a read of all topics, also takes system topics, retry topics and dead"
        " letters",
    ),
    "startingTimestamp": ("", "messages stored from then on: milliseconds or ISO 8601"),
    "endingTimestamp": ("", "batch only: messages stored before then"),
    "startingOffsets": (
        "latest (stream), earliest (batch)",
        "earliest, latest (stream), or JSON by topic, broker, queue: only these queues, from there",
    ),
    "endingOffsets": ("latest", "batch only: latest, or JSON as for startingOffsets"),
    "tags": ("*", "`A || B`"),
    "brokerName": ("", "the broker's name, for column `brokerName` (else NULL) and for offsets"),
    "columns": ("", "comma list of columns instead of the default ones"),
    "limit": ("0", "batch only: the most rows to read"),
    "onCorrupt": (
        "fail",
        "where no record can be read: fail, or skip to the next good record with a warning",
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
    "offsetRefreshMs": ("100", "stream: how often an idle stream looks for new records"),
}
"""Every option of a read of log files: default and meaning."""

SINK: dict[str, tuple[str, str]] = {
    "nameServer": ("required", "name servers, `host:port;host:port`; without it NAMESRV_ADDR"),
    "topic": ("column `topic`", "topic of all rows; beats the column"),
    "namespace": ("", "namespace of topics and group"),
    "layout": ("rocketmq", "rocketmq, or kafka: the columns of Spark's Kafka sink"),
    "includeHeaders": (
        "false",
        "layout=kafka only, for programs that give it: a column headers is sent in any case",
    ),
    "delivery": ("at-least-once", "at-least-once or exactly-once"),
    "onBadRow": ("fail", "fail, or a topic that gets the rows that cannot be messages"),
    "group": ("pyrmq-spark", "producer group"),
    "timeoutMs": ("30000", "how long a message may take to be stored, retries included"),
    **SECURITY,
}
"""Every option of the sink: default and meaning."""
