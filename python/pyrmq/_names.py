"""Names on which all RocketMQ servers and clients agree: topics, groups, permissions, properties.

Each stands here once, with the value and name that it has in crates/remoting (``names.rs``,
``properties.rs``). This module imports nothing.
"""

from typing import Final

__all__ = [
    "DELAY_LEVELS",
    "DLQ_PREFIX",
    "FILTER_SERVER_GROUP",
    "HALF_TOPIC",
    "INTERNAL_PREFIXES",
    "ONS_API_OWNER_GROUP",
    "ONS_API_PERMISSION_GROUP",
    "ONS_API_PULL_GROUP",
    "ONS_HTTP_PROXY_GROUP",
    "PERM_READ",
    "PERM_WRITE",
    "RETRY_PREFIX",
    "SCHEDULE_TOPIC",
    "SELF_TEST_GROUP",
    "SYSTEM_GROUP_PREFIX",
    "SYSTEM_PREFIX",
    "TEMPLATE_TOPIC",
    "TIMER_TOPIC",
    "TOOLS_GROUP",
    "TRACE_TOPIC",
    "V4_7_1",
    "V5_0_0",
    "Property",
    "reply_topic",
]

RETRY_PREFIX: Final = "%RETRY%"
"""Prefix of a group's retry topic."""
DLQ_PREFIX: Final = "%DLQ%"
"""Prefix of a group's dead-letter topic."""
SYSTEM_PREFIX: Final = "rmq_sys_"
"""Prefix of the system topics that newer versions added."""
INTERNAL_PREFIXES: Final = (SYSTEM_PREFIX, RETRY_PREFIX, DLQ_PREFIX)
"""Prefixes of topics that are no application's."""

TEMPLATE_TOPIC: Final = "TBW102"
"""Template of topics that are created by their first message."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Holds messages of delay levels until their time comes, one queue for each level."""
DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Delays of the levels, from level 1 on, unless a broker has others."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Holds timer messages until their time comes."""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Holds messages of transactions until they are committed."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Message traces, unless a client names another topic."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
"""Prefix of the groups of brokers."""
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""Apache's group for tools: every broker has it, and no application consumes with it."""
FILTER_SERVER_GROUP: Final = "FILTERSRV_CONSUMER"
"""Group of Apache's filter servers."""
SELF_TEST_GROUP: Final = "SELF_TEST_C_GROUP"
"""Group of Apache's self test."""
ONS_HTTP_PROXY_GROUP: Final = "CID_ONS-HTTP-PROXY"
"""Group of the HTTP proxy of ONS."""
ONS_API_PULL_GROUP: Final = "CID_ONSAPI_PULL"
"""Group of pulls through the API of ONS."""
ONS_API_PERMISSION_GROUP: Final = "CID_ONSAPI_PERMISSION"
"""Group of the API of ONS for permissions."""
ONS_API_OWNER_GROUP: Final = "CID_ONSAPI_OWNER"
"""Group of the API of ONS for owners."""

PERM_READ: Final = 4
"""Permission bit: may be read."""
PERM_WRITE: Final = 2
"""Permission bit: may be written."""

V4_7_1: Final = 355
"""Ordinal of RocketMQ 4.7.1 in the version of a command."""
V5_0_0: Final = 413
"""Ordinal of RocketMQ 5.0.0 in the version of a command."""


def reply_topic(cluster: str) -> str:
    """Return the topic of the replies to requests in a cluster.

    Example:
        >>> reply_topic("DefaultCluster")
        'DefaultCluster_REPLY_TOPIC'
    """
    return f"{cluster}_REPLY_TOPIC"


class Property:
    """Names of the message properties that RocketMQ itself uses."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QID: Final = "REAL_QID"
    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    UNIQ_KEY: Final = "UNIQ_KEY"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    CLUSTER: Final = "CLUSTER"
    MSG_TYPE: Final = "MSG_TYPE"
    SHARDINGKEY: Final = "__SHARDINGKEY"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
