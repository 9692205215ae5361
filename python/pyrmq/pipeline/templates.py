"""The pipelines that ``pyrmq pipeline init`` writes."""

from __future__ import annotations

__all__ = ["TEMPLATES"]

_LAKE = """\
# Keep a topic as files, exactly once, in folders by day.
[source]
nameServer = "127.0.0.1:9876"
topic = "orders"
# json = "id BIGINT NOT NULL, total DOUBLE"   # bodies as columns

[[step]]
sql = "SELECT *, cast(storeTimestamp AS date) AS day FROM input"

[sink]
format = "parquet"              # or delta, iceberg
path = "lake/orders"
partitionBy = ["day"]

[spark]
master = "local[*]"
"""

_TRACE = """\
# Latency of sends and deliveries, by topic, from the messages of the trace topic.
[source]
nameServer = "127.0.0.1:9876"
topic = "RMQ_SYS_TRACE_TOPIC"
batch = true

[[step]]
python = "pyrmq.pipeline.steps:trace"

[[step]]
sql = '''
SELECT kind, topic, `group`, brokerName, count(*) AS calls,
       percentile_approx(costMs, 0.5) AS p50_ms, percentile_approx(costMs, 0.99) AS p99_ms,
       round(avg(cast(NOT ok AS int)), 4) AS failed
FROM input GROUP BY kind, topic, `group`, brokerName ORDER BY p99_ms DESC
'''

[sink]
format = "console"

[spark]
master = "local[*]"
"""

_REPLAY = """\
# Send dead letters of a group to their topics again.
[source]
nameServer = "127.0.0.1:9876"
topic = "%DLQ%billing"
# startingTimestamp = "2026-11-23T00:00:00Z"

[[step]]
sql = "SELECT * FROM input WHERE reconsumeTimes >= 0"   # choose what goes back

[[step]]
python = "pyrmq.pipeline.steps:replay"

[quality]
where = "topic IS NOT NULL"
reject = "drop"

[sink]
format = "topic"

[spark]
master = "local[*]"
"""

_BACKFILL = """\
# Write a store directory to files, without a broker.
[source]
path = "/data/store"
topic = "orders"
batch = true

[[step]]
sql = "SELECT *, cast(storeTimestamp AS date) AS day FROM input"

[sink]
format = "parquet"
path = "lake/orders"
partitionBy = ["day"]

[spark]
master = "local[*]"
"""

_MIRROR = """\
# Copy a topic to another cluster, exactly once; the rows of a queue keep their order.
[source]
nameServer = "127.0.0.1:9876"
topic = "orders"

[[step]]
python = "pyrmq.pipeline.steps:mirror"

[sink]
format = "topic"
nameServer = "127.0.0.2:9876"
topic = "orders"
delivery = "exactly-once"

[spark]
master = "local[*]"
"""

_QUALITY = """\
# Pass on valid rows; others go to a topic, with the reason.
[source]
nameServer = "127.0.0.1:9876"
topic = "orders"
json = "id BIGINT NOT NULL, total DOUBLE"

[quality]
where = "total > 0"
reject = "orders-rejected"

[[step]]
sql = "SELECT * FROM input"

[sink]
format = "parquet"
path = "lake/orders"

[spark]
master = "local[*]"
"""

_DEDUPE = """\
# Keep the first message of each key within an hour.
[source]
nameServer = "127.0.0.1:9876"
topic = "orders"

[[step]]
python = "pyrmq.pipeline.steps:deduplicate"
args = { keys = ["keys"], within = "1 hour" }

[sink]
format = "parquet"
path = "lake/orders"

[spark]
master = "local[*]"
"""

TEMPLATES = {
    "lake": _LAKE,
    "trace": _TRACE,
    "replay": _REPLAY,
    "backfill": _BACKFILL,
    "mirror": _MIRROR,
    "quality": _QUALITY,
    "dedupe": _DEDUPE,
}
"""A file for each kind of pipeline."""
