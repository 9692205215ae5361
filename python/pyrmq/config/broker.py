"""Options of the broker.

In Apache `BrokerConfig`, `BrokerIdentity`, `MessageStoreConfig` and `NettyServerConfig`.
"""

from __future__ import annotations

from typing import ClassVar

from pyrmq._names import DELAY_LEVELS, TRACE_TOPIC
from pyrmq.config.option import INT_MAX, LONG_MAX, PORT_MAX, option
from pyrmq.config.watching import WatchedOptions

BROKER_PORT = 10911

BROKER_STATUS = 30_002
"""Request code of our own that Apache does not use: the broker's state as JSON.

Only for servers whose answers carry version 5.0.0 or newer, as ours do: Apache's brokers before
4.9.1 and its name servers before 5.0 send no answer to a request that they do not know.
"""


class BrokerOptions(WatchedOptions):
    """Options of the broker.

    Example:
        >>> from pyrmq.config import BrokerOptions
        >>> BrokerOptions(broker_name="broker-a").broker_name
        'broker-a'
    """

    role: ClassVar[str] = "broker"

    broker_cluster_name: str = option(default="DefaultCluster", text="cluster of the broker")
    broker_name: str = option(
        default="DEFAULT_BROKER", text="name that a master and its slaves share"
    )
    broker_id: int = option(
        default=0, text="0 for a master; slaves are not supported", maximum=LONG_MAX
    )
    broker_ip1: str | None = option(
        default=None,
        text="address for clients; default: this machine's",
        apache="brokerIP1",
    )
    advertised_addresses: str = option(
        default="",
        text="addresses for clients of other networks: `outside=203.0.113.7:30911`, several "
        "separated by `;`; `addressSetListeners` of a name server decides who gets them "
        "(pyrmq only)",
    )
    bind_address: str | None = option(
        default=None, text="address to listen on; empty: every address"
    )
    listen_port: int = option(
        default=10911,
        text="main port; the fast port is two below; 0 picks a free pair",
        maximum=PORT_MAX,
    )
    namesrv_addr: str | None = option(
        default=None, text="name servers, `host:port;host:port`; empty: none"
    )
    broker_permission: int = option(default=6, text="bits: 4 read, 2 write", maximum=7, live=True)
    default_topic_queue_nums: int = option(
        default=8,
        text="queues of the template topic TBW102",
        unit="queues",
        minimum=1,
        maximum=PORT_MAX,
    )
    auto_create_topic_enable: bool = option(
        default=True,
        text="a send to an unknown topic creates it from a template that has the inherit bit",
        live=True,
    )
    auto_create_topic_limit: int = option(
        default=20_000,
        text="number of topics from which sends create no more; administrators can (pyrmq only)",
        unit="topics",
        minimum=0,
        maximum=10_000_000,
        live=True,
    )
    max_topics_per_user: int = option(
        default=0,
        text="topics that one user may create; users who may change the cluster's settings have no "
        "limit; without authentication nobody has one; 0: no limit (pyrmq only)",
        unit="topics",
        maximum=10_000_000,
        live=True,
    )
    auto_create_group_limit: int = option(
        default=10_000,
        text="number of groups from which consumers create no more; administrators can "
        "(pyrmq only)",
        unit="groups",
        minimum=0,
        maximum=10_000_000,
        live=True,
    )
    authentication_enabled: bool = option(
        default=False,
        text="whether every request must be signed by a user of `authConfigPath`",
    )
    authorization_enabled: bool = option(
        default=False,
        text="whether policies decide which requests a user may send; needs authenticationEnabled",
    )
    auth_config_path: str | None = option(
        default=None,
        text="file of the users and policies (JSON, mode 0600); read again when it changes",
    )
    inner_client_credentials_path: str | None = option(
        default=None,
        text="file with the user that signs this server's own requests (pyrmq only)",
    )
    acl_enable: bool = option(
        default=False,
        text="whether every request must be signed by an account of 4.x, or come from a white "
        "address; excludes authenticationEnabled",
    )
    rocketmq_home: str | None = option(
        default=None,
        text="directory in which aclEnable finds `conf/plain_acl.yml` and `conf/acl`; default: the "
        "environment variable ROCKETMQ_HOME",
    )
    acl_plain_file: str = option(
        default="conf/plain_acl.yml",
        text="file of the accounts (YAML, mode 0600), relative to rocketmqHome; read again when it "
        "changes, as those in `conf/acl`",
        apache="rocketmq.acl.plain.file",
    )
    auto_create_subscription_group: bool = option(
        default=True,
        text="an unknown consumer group is created on first use",
        live=True,
    )
    cluster_topic_enable: bool = option(
        default=True, text="the topic named after the cluster can be read and written"
    )
    broker_topic_enable: bool = option(
        default=True, text="the topic named after the broker can be read and written"
    )
    trace_topic_enable: bool = option(
        default=False, text="creates the topic for message traces", live=True
    )
    msg_trace_topic_name: str = option(
        default=TRACE_TOPIC, text="name of the topic for message traces", live=True
    )
    trace_on: bool = option(default=True, text="asks clients to trace their sends", live=True)
    region_id: str = option(default="DefaultRegion", text="region written into each message")
    long_polling_enable: bool = option(
        default=True,
        text="whether a pull at a queue's end may wait; otherwise `shortPollingTimeMills`",
        live=True,
    )
    short_polling_time_mills: int = option(
        default=1000,
        text="wait of a pull without long polling",
        unit="ms",
        minimum=1,
        maximum=60_000,
        live=True,
    )
    pull_thread_pool_queue_capacity: int = option(
        default=100_000,
        text="pulls that may wait at once; the next is answered busy",
        unit="requests",
        minimum=1,
        maximum=10_000_000,
    )
    admin_broker_thread_pool_queue_capacity: int = option(
        default=10_000,
        text="requests for Python processors that may wait at once",
        unit="requests",
        minimum=1,
        maximum=10_000_000,
    )
    notify_consumer_ids_changed_enable: bool = option(
        default=True,
        text="members of a consumer group are notified when another member joins or leaves",
        live=True,
    )
    reject_pull_consumer_enable: bool = option(
        default=False,
        text="pull consumers are refused",
        live=True,
    )
    lite_pull_message_enable: bool = option(
        default=True, text="lite pull consumers may pull", live=True
    )
    enable_property_filter: bool = option(
        default=False,
        text="consumers may filter by SQL92 conditions on properties",
        live=True,
    )
    reject_transaction_message: bool = option(
        default=False,
        text="transactional messages are refused",
        live=True,
    )
    transaction_time_out: int = option(
        default=6000,
        text="age at which the broker first checks a transaction",
        unit="ms",
        minimum=1,
        maximum=86_400_000,
        live=True,
    )
    transaction_check_max: int = option(
        default=15,
        text="checks after which a transaction is given up",
        unit="checks",
        minimum=1,
        maximum=1_000_000,
        live=True,
    )
    transaction_check_interval: int = option(
        default=30_000,
        text="how often open transactions are checked",
        unit="ms",
        minimum=10,
        maximum=86_400_000,
        live=True,
    )
    store_reply_message_enable: bool = option(
        default=True, text="replies to requests are stored too"
    )
    use_server_side_reset_offset: bool = option(
        default=True,
        text="a reset of offsets is stored here and reported to the next pull",
    )
    validate_system_topic_when_update_topic: bool = option(
        default=True, text="system topics cannot be changed by clients"
    )
    flush_consumer_offset_interval: int = option(
        default=5000,
        text="how often consumer offsets are written",
        unit="ms",
        minimum=100,
        maximum=3_600_000,
        live=True,
    )
    flush_delay_offset_interval: int = option(
        default=10_000,
        text="how often the progress of delayed messages is written",
        unit="ms",
        minimum=100,
        maximum=3_600_000,
        live=True,
    )
    register_name_server_period: int = option(
        default=30_000,
        text="how often the broker registers at its name servers",
        unit="ms",
        minimum=10_000,
        maximum=60_000,
    )
    register_broker_timeout_mills: int = option(
        default=24_000,
        text="how long a name server may take to answer a registration",
        unit="ms",
        minimum=100,
        maximum=120_000,
    )
    channel_expired_timeout: int = option(
        default=120_000,
        text="time without a heartbeat after which a client is dropped",
        unit="ms",
        minimum=1000,
        maximum=3_600_000,
    )
    lock_max_live_time: int = option(
        default=60_000,
        text="time without renewal after which an orderly consumer's queue lock expires",
        unit="ms",
        minimum=100,
        maximum=3_600_000,
    )
    message_delay_level: str = option(
        default=DELAY_LEVELS,
        text="delays of the levels, from level 1 on",
    )
    timer_wheel_enable: bool = option(
        default=True, text="messages can be delivered at a chosen time"
    )
    timer_precision_ms: int = option(
        default=1000,
        text="steps of the timer: 100, 200, 500 or 1000; fixed while messages wait",
        unit="ms",
        minimum=100,
        maximum=1000,
    )
    timer_max_delay_sec: int = option(
        default=3 * 86_400,
        text="longest delay of a timer message",
        unit="s",
        minimum=1,
    )
    timer_roll_window_slot: int = option(
        default=2 * 86_400,
        text="steps of a round; messages that are due later wait for several rounds",
        unit="steps",
        minimum=2,
        maximum=7 * 86_400 - 60,
    )
    timer_congest_num_each_slot: int = option(
        default=INT_MAX,
        text="timer messages of one step from which some sends are refused; at twice as many, "
        "all are",
        unit="messages",
        minimum=1,
    )
    timer_stop_enqueue: bool = option(
        default=False, text="new timer messages do not enter the timer"
    )
    timer_stop_dequeue: bool = option(default=False, text="timer messages are not delivered")
    timer_flush_interval_ms: int = option(
        default=1000,
        text="how often changed timer files are flushed",
        unit="ms",
        minimum=10,
        maximum=600_000,
    )
    mapped_file_size_timer_log: int = option(
        default=100 * 2**20, text="size of a file of the timer's log", unit="bytes", minimum=4096
    )
    recall_message_enable: bool = option(
        default=False,
        text="timer messages can be recalled before they are due",
        live=True,
    )
    allow_recall_when_broker_not_writeable: bool = option(
        default=True,
        text="timer messages can be recalled also while the broker is not writable",
        live=True,
    )
    append_topic_for_timer_delete_key: bool = option(
        default=False,
        text="recalls name the topic as well as the unique key, so that a recall cannot cancel a "
        "message of another topic; an Apache 5.5.0 broker that takes over the store needs the "
        "same setting",
        live=True,
    )
    max_message_size: int = option(
        default=4 * 1024 * 1024,
        text="longest body of a message",
        unit="bytes",
        minimum=1,
        maximum=128 << 20,
        live=True,
    )
    max_transfer_count_on_message_in_memory: int = option(
        default=1024,
        text="maximum messages in one answer to a pull; Apache's default is 32",
        unit="messages",
        minimum=1,
        maximum=65_536,
        live=True,
    )
    max_transfer_bytes_on_message_in_memory: int = option(
        default=4 * 1024 * 1024,
        text="maximum bytes in one answer to a pull; one message always passes. With the default a "
        "pull that names no size gets 256 KiB",
        unit="bytes",
        minimum=1,
        maximum=1 << 30,
        live=True,
    )
    max_msgs_num_batch: int = option(
        default=64,
        text="maximum messages in one answer to a query by key",
        unit="messages",
        minimum=1,
        maximum=10_000,
        live=True,
    )
    max_pop_polling_size: int = option(
        default=100_000,
        text="maximum pops and notifications that wait",
        unit="requests",
        minimum=1,
        maximum=10_000_000,
    )
    pop_polling_size: int = option(
        default=1024,
        text="maximum pops of a group that wait for a queue, or for any; as many notifications may",
        unit="requests",
        minimum=1,
        maximum=10_000_000,
    )
    pop_from_retry_probability: int = option(
        default=20,
        text="percentage of pops that read the retry topic first; the others read it last",
        unit="percent",
        maximum=100,
    )
    enable_retry_topic_v2: bool = option(
        default=False,
        text="popped messages that come back go to `%RETRY%group+topic` instead of "
        "`%RETRY%group_topic`",
    )
    retrieve_message_from_pop_retry_topic_v1: bool = option(
        default=True,
        text="with `enableRetryTopicV2`, pops also read `%RETRY%group_topic`",
    )
    default_message_request_mode: str = option(
        default="PULL",
        text="how groups get messages of topics for which `setConsumeMode` was not used",
        choices=("PULL", "POP"),
    )
    default_pop_share_queue_num: int = option(
        default=-1,
        text="with POP as the default: number of other clients that also pop a client's queues; "
        "-1: all clients pop all queues",
        unit="clients",
        minimum=-1,
        maximum=1_000_000,
    )
    server_load_balancer_enable: bool = option(
        default=True,
        text="the broker divides queues among the clients that ask it for their queues",
    )
    default_query_max_num: int = option(
        default=32,
        text="maximum messages in one answer to a query by unique key",
        unit="messages",
        minimum=1,
        maximum=10_000,
        live=True,
    )
    sync_flush_timeout: int = option(
        default=5000,
        text="how long a send waits for the disk with SYNC_FLUSH",
        unit="ms",
        minimum=1,
        maximum=600_000,
        live=True,
    )
    os_page_cache_busy_time_out_mills: int = option(
        default=1000,
        text="duration of a write or fsync after which sends are answered busy",
        unit="ms",
        minimum=1,
        maximum=600_000,
        live=True,
    )
    wait_time_mills_in_send_queue: int = option(
        default=1000,
        text="wait for other sends after which a send is answered busy",
        unit="ms",
        minimum=1,
        maximum=600_000,
        live=True,
    )
    send_thread_pool_queue_capacity: int = option(
        default=10_000,
        text="sends that may wait for the disk at once",
        unit="sends",
        minimum=1,
        maximum=10_000_000,
        live=True,
    )
    store_path_root_dir: str | None = option(
        default=None, text="directory of the store; default: ~/store"
    )
    store_path_commit_log: str | None = option(
        default=None, text="directory of the commit log; default: commitlog in the store"
    )
    mapped_file_size_commit_log: int = option(
        default=1 << 30, text="size of a commit log segment", unit="bytes", minimum=4096
    )
    mapped_file_size_consume_queue: int = option(
        default=6_000_000,
        text="size of a consume queue file, a multiple of 20",
        unit="bytes",
        minimum=20,
    )
    flush_disk_type: str = option(
        default="ASYNC_FLUSH",
        text="whether a send is answered before its message is on disk",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
        live=True,
    )
    flush_interval_commit_log: int = option(
        default=500,
        text="how often the commit log is flushed with ASYNC_FLUSH",
        unit="ms",
        minimum=1,
        maximum=60_000,
        live=True,
    )
    flush_interval_consume_queue: int = option(
        default=1000,
        text="how often the consume queues are flushed",
        unit="ms",
        minimum=1,
        maximum=600_000,
        live=True,
    )
    file_reserved_time: int = option(
        default=72, text="how long a segment is kept", unit="hours", maximum=2**32 - 1, live=True
    )
    delete_when: str = option(
        default="04",
        text="hours of the day at which old segments are deleted, separated by `;`",
        live=True,
    )
    disk_max_used_space_ratio: int = option(
        default=75,
        text="disk usage at which old segments are deleted at any hour",
        unit="percent",
        minimum=10,
        maximum=95,
        live=True,
    )
    disk_space_clean_forcibly_ratio: int = option(
        default=85,
        text="disk usage at which segments of any age are deleted",
        unit="percent",
        minimum=10,
        maximum=99,
        live=True,
    )
    disk_space_warning_level_ratio: int = option(
        default=90,
        text="disk usage at which sends are refused",
        unit="percent",
        minimum=10,
        maximum=100,
        live=True,
    )
    disk_space_enough_bytes: int = option(
        default=16 * 2**30,
        text="free bytes above which the two ratios above do not count (pyrmq only)",
        unit="bytes",
        maximum=2**63 - 1,
        live=True,
    )
    disk_space_min_free_bytes: int = option(
        default=256 * 2**20,
        text="free bytes below which sends are refused at any ratio (pyrmq only)",
        unit="bytes",
        maximum=2**63 - 1,
        live=True,
    )
    hot_log_bytes: int = option(
        default=2**30,
        text="bytes of the log to keep in the page cache, at most an eighth of the memory; 0: the "
        "system decides (pyrmq only)",
        unit="bytes",
        maximum=2**63 - 1,
        live=True,
    )
    store_max_bytes: int = option(
        default=0,
        text="size of the commit log above which the oldest segments are deleted at any age; 0: no "
        "limit (pyrmq only)",
        unit="bytes",
        maximum=2**63 - 1,
        live=True,
    )
    clean_resource_interval: int = option(
        default=10_000,
        text="how often the store checks for segments to delete",
        unit="ms",
        minimum=10,
        maximum=86_400_000,
        live=True,
    )
    message_index_enable: bool = option(default=True, text="whether messages can be found by key")
    max_hash_slot_num: int = option(
        default=5_000_000,
        text="slots of a key index file",
        unit="slots",
        minimum=1,
        maximum=500_000_000,
    )
    max_index_num: int = option(
        default=20_000_000,
        text="entries of a key index file",
        unit="entries",
        minimum=2,
        maximum=100_000_000,
    )
    check_crc_on_recover: bool = option(
        default=True,
        text="whether recovery verifies the checksums of bodies",
        apache="checkCRCOnRecover",
    )
    config_black_list: str = option(
        default="configBlackList;brokerConfigPath",
        text="options that request code 25 may not change, separated by `;`",
    )
