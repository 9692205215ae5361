"""Options of the broker.

In Apache `BrokerConfig`, `BrokerIdentity`, `MessageStoreConfig` and `NettyServerConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq.config.option import LONG_MAX, PORT_MAX, Options, option

BROKER_PORT = 10911


@dataclass(frozen=True, kw_only=True)
class BrokerOptions(Options):
    """Options of the broker.

    Example:
        >>> from pyrmq.config import BrokerOptions
        >>> BrokerOptions(broker_name="broker-a").broker_name
        'broker-a'
    """

    role: ClassVar[str] = "broker"

    broker_cluster_name: str = option("DefaultCluster", "cluster that the broker belongs to")
    broker_name: str = option("DEFAULT_BROKER", "name that master and slaves share")
    broker_id: int = option(
        0, "0 is the master; slaves come with the replication issue", maximum=LONG_MAX
    )
    broker_ip1: str | None = option(
        None,
        "address that clients are told; empty: the machine's first address that is not loopback",
        apache="brokerIP1",
    )
    bind_address: str | None = option(None, "address to listen on; empty: every address")
    listen_port: int = option(
        10911, "main port; the fast port is two below. 0 picks a free pair", maximum=PORT_MAX
    )
    ha_listen_port: int = option(
        10912, "where slaves would connect; told to name servers", maximum=PORT_MAX
    )
    namesrv_addr: str | None = option(
        None, "name servers, `host:port;host:port`; empty: stands alone"
    )
    broker_permission: int = option(6, "bits: 4 read, 2 write", maximum=7)
    default_topic_queue_nums: int = option(
        8, "queues of the template topic TBW102", unit="queues", minimum=1, maximum=PORT_MAX
    )
    auto_create_topic_enable: bool = option(
        True, "a send to an unknown topic makes it, after a template with the inherit bit"
    )
    auto_create_subscription_group: bool = option(
        True, "an unknown consumer group is made at its first use"
    )
    cluster_topic_enable: bool = option(
        True, "the topic named after the cluster can be read and written"
    )
    broker_topic_enable: bool = option(
        True, "the topic named after the broker can be read and written"
    )
    trace_topic_enable: bool = option(False, "makes the topic for message traces")
    msg_trace_topic_name: str = option(
        "RMQ_SYS_TRACE_TOPIC", "name of the topic for message traces"
    )
    trace_on: bool = option(True, "told to clients: trace what they send")
    region_id: str = option("DefaultRegion", "region written into each message")
    long_polling_enable: bool = option(
        True,
        "whether a pull at a queue's end may wait; else `shortPollingTimeMills`",
    )
    short_polling_time_mills: int = option(
        1000, "wait of a pull without long polling", unit="ms", minimum=1, maximum=60_000
    )
    pull_thread_pool_queue_capacity: int = option(
        100_000,
        "pulls that may wait at once; one more is told that the broker is busy",
        unit="requests",
        minimum=1,
        maximum=10_000_000,
    )
    admin_broker_thread_pool_queue_capacity: int = option(
        10_000,
        "requests for Python processors that may wait at once",
        unit="requests",
        minimum=1,
        maximum=10_000_000,
    )
    notify_consumer_ids_changed_enable: bool = option(
        True, "members of a consumer group are told when another comes or goes"
    )
    reject_pull_consumer_enable: bool = option(
        False, "pull consumers (those that do not push) are refused"
    )
    lite_pull_message_enable: bool = option(True, "lite pull consumers may pull")
    reject_transaction_message: bool = option(False, "transactional messages are refused")
    store_reply_message_enable: bool = option(True, "replies to requests are stored too")
    use_server_side_reset_offset: bool = option(
        True,
        "a reset of offsets is kept here and told to the next pull",
    )
    validate_system_topic_when_update_topic: bool = option(
        True, "system topics cannot be changed by clients"
    )
    flush_consumer_offset_interval: int = option(
        5000, "how often consumer offsets are written", unit="ms", minimum=100, maximum=3_600_000
    )
    flush_delay_offset_interval: int = option(
        10_000,
        "how often the progress of delayed messages is written",
        unit="ms",
        minimum=100,
        maximum=3_600_000,
    )
    register_name_server_period: int = option(
        30_000,
        "how often the broker registers at its name servers",
        unit="ms",
        minimum=10_000,
        maximum=60_000,
    )
    register_broker_timeout_mills: int = option(
        24_000,
        "how long a name server may take to answer a registration",
        unit="ms",
        minimum=100,
        maximum=120_000,
    )
    channel_expired_timeout: int = option(
        120_000,
        "a client without heartbeat for so long is dropped",
        unit="ms",
        minimum=1000,
        maximum=3_600_000,
    )
    lock_max_live_time: int = option(
        60_000,
        "a queue lock of an orderly consumer lives so long without renewal",
        unit="ms",
        minimum=100,
        maximum=3_600_000,
    )
    message_delay_level: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "delays of the levels, from level 1 on",
    )
    max_message_size: int = option(
        4 * 1024 * 1024, "longest body of a message", unit="bytes", minimum=1, maximum=128 << 20
    )
    max_transfer_count_on_message_in_memory: int = option(
        32, "most messages in one answer to a pull", unit="messages", minimum=1, maximum=65_536
    )
    max_transfer_bytes_on_message_in_memory: int = option(
        256 * 1024,
        "most bytes in one answer to a pull; one message always passes",
        unit="bytes",
        minimum=1,
        maximum=1 << 30,
    )
    max_msgs_num_batch: int = option(
        64,
        "most messages in one answer to a query by key",
        unit="messages",
        minimum=1,
        maximum=10_000,
    )
    default_query_max_num: int = option(
        32,
        "most messages in one answer to a query by unique key",
        unit="messages",
        minimum=1,
        maximum=10_000,
    )
    sync_flush_timeout: int = option(
        5000,
        "how long a send waits for the disk with SYNC_FLUSH",
        unit="ms",
        minimum=1,
        maximum=600_000,
    )
    store_path_root_dir: str | None = option(
        None, "directory of the store; ~/store where it is not set"
    )
    store_path_commit_log: str | None = option(
        None, "directory of the commit log; commitlog in the store where it is not set"
    )
    mapped_file_size_commit_log: int = option(
        1 << 30, "size of a commit log segment", unit="bytes", minimum=4096
    )
    mapped_file_size_consume_queue: int = option(
        6_000_000, "size of a consume queue file, a multiple of 20", unit="bytes", minimum=20
    )
    flush_disk_type: str = option(
        "ASYNC_FLUSH",
        "whether a send is answered before its message is on disk",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
    )
    flush_interval_commit_log: int = option(
        500,
        "how often the commit log is flushed with ASYNC_FLUSH",
        unit="ms",
        minimum=1,
        maximum=60_000,
    )
    flush_interval_consume_queue: int = option(
        1000, "how often the consume queues are flushed", unit="ms", minimum=1, maximum=600_000
    )
    file_reserved_time: int = option(
        72, "how long a segment is kept", unit="hours", maximum=2**32 - 1
    )
    delete_when: str = option("04", "hours of the day at which old segments go, by `;`")
    disk_max_used_space_ratio: int = option(
        75,
        "use of the disk from which old segments go at any hour",
        unit="percent",
        minimum=10,
        maximum=95,
    )
    disk_space_clean_forcibly_ratio: int = option(
        85,
        "use of the disk from which segments go whatever their age",
        unit="percent",
        minimum=10,
        maximum=99,
    )
    disk_space_warning_level_ratio: int = option(
        90, "use of the disk from which sends are refused", unit="percent", minimum=10, maximum=100
    )
    clean_resource_interval: int = option(
        10_000,
        "how often the store looks for what may go",
        unit="ms",
        minimum=10,
        maximum=86_400_000,
    )
    message_index_enable: bool = option(True, "whether messages are found by key")
    max_hash_slot_num: int = option(
        5_000_000, "slots of a key index file", unit="slots", minimum=1, maximum=500_000_000
    )
    max_index_num: int = option(
        20_000_000, "entries of a key index file", unit="entries", minimum=2, maximum=100_000_000
    )
    check_crc_on_recover: bool = option(
        True, "whether recovery checks the sums of bodies", apache="checkCRCOnRecover"
    )
