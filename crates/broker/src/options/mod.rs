//! The options of a broker: Apache's `broker.conf` keys with default, unit and range (Apache `BrokerConfig`).
//!
//! One table declares each key once; reading, showing and validating follow from it. Nothing is corrected silently: a
//! value out of its range is an error that names key, value and range.

mod live;

pub use live::LiveOptions;

use crate::error::BrokerError;
use pyrmq_remoting::header::{ADVERTISED_ADDRESSES, read_address_sets};
use pyrmq_remoting::names;
use pyrmq_remoting::text::split_host_port;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

pub use pyrmq_remoting::setting::Setting;

/// The store's directory if none is given (Apache `MessageStoreConfig.storePathRootDir`).
fn home_store() -> PathBuf {
    std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default()
        .join("store")
}

pyrmq_remoting::options! {
    /// The options of a broker.
    pub struct Options, BrokerError;
    also {
        /// The options of the message store.
        store: pyrmq_store::Options = pyrmq_store::Options::new(home_store());
    }
    /// Name of the cluster that the broker belongs to.
    broker_cluster_name: String = "DefaultCluster".to_owned(), "brokerClusterName", "text", 0..=0;
    /// Name that master and slaves share.
    broker_name: String = "DEFAULT_BROKER".to_owned(), "brokerName", "text", 0..=0;
    /// 0, the master; slaves are not supported.
    broker_id: i64 = 0, "brokerId", "number", 0..=i64::MAX;
    /// Address for clients; empty: the machine's first address that is not loopback.
    broker_ip1: String = String::new(), "brokerIP1", "address", 0..=0;
    /// Addresses for clients of other networks, `set=host:port;set=host:port`. A client gets the address of the set
    /// whose listener of a pyrmq name server it asks; at Apache's name servers `brokerIP1` holds.
    advertised_addresses: String = String::new(), "advertisedAddresses", "address list", 0..=0;
    /// Address to listen on; empty: every address.
    bind_address: String = String::new(), "bindAddress", "address", 0..=0;
    /// Main port; the fast port is two below. 0 picks a free pair.
    listen_port: i32 = 10911, "listenPort", "port", 0..=65535;
    /// Name servers, `host:port;host:port`; empty: none.
    namesrv_addr: String = String::new(), "namesrvAddr", "address list", 0..=0;
    /// Bits: 4 read, 2 write.
    broker_permission: i32 = 6, "brokerPermission", "bit set", 0..=7, live;
    /// Queues of the template topic TBW102.
    default_topic_queue_nums: i32 = 8, "defaultTopicQueueNums", "queues", 1..=65535;
    /// Whether a send to an unknown topic creates it from a template with the inherit bit.
    auto_create_topic_enable: bool = true, "autoCreateTopicEnable", "switch", 0..=0, live;
    /// Whether an unknown consumer group is created at its first use.
    auto_create_subscription_group: bool = true, "autoCreateSubscriptionGroup", "switch", 0..=0, live;
    /// Number of topics at which sends create no more; administrators can.
    auto_create_topic_limit: i32 = 20_000, "autoCreateTopicLimit", "topics", 0..=10_000_000, live;
    /// Topics that one user may have made; 0: any number. Users who may change the cluster have no limit.
    max_topics_per_user: i32 = 0, "maxTopicsPerUser", "topics", 0..=10_000_000, live;
    /// Number of consumer groups at which consumers create no more; administrators can.
    auto_create_group_limit: i32 = 10_000, "autoCreateGroupLimit", "groups", 0..=10_000_000, live;
    /// The topic named after the cluster can be read and written.
    cluster_topic_enable: bool = true, "clusterTopicEnable", "switch", 0..=0;
    /// The topic named after the broker can be read and written.
    broker_topic_enable: bool = true, "brokerTopicEnable", "switch", 0..=0;
    /// Whether to create the topic for message traces.
    trace_topic_enable: bool = false, "traceTopicEnable", "switch", 0..=0, live;
    /// Name of the topic for message traces.
    msg_trace_topic_name: String = names::TRACE_TOPIC.to_owned(), "msgTraceTopicName", "text", 0..=0, live;
    /// Whether clients are asked to trace their sends.
    trace_on: bool = true, "traceOn", "switch", 0..=0, live;
    /// Region written into each message.
    region_id: String = "DefaultRegion".to_owned(), "regionId", "text", 0..=0;
    /// Whether a pull at a queue's end may wait as long as its client allows; otherwise `shortPollingTimeMills`
    /// applies.
    long_polling_enable: bool = true, "longPollingEnable", "switch", 0..=0, live;
    /// How long a pull waits without long polling.
    short_polling_time_mills: i64 = 1000, "shortPollingTimeMills", "ms", 1..=60_000, live;
    /// Pulls that may wait at once; the next is answered busy.
    pull_thread_pool_queue_capacity: i32 = 100_000, "pullThreadPoolQueueCapacity", "requests", 1..=10_000_000;
    /// Requests for Python processors that may wait at once.
    admin_broker_thread_pool_queue_capacity: i32 = 10_000, "adminBrokerThreadPoolQueueCapacity", "requests", 1..=10_000_000;
    /// Whether members of a consumer group are notified when another joins or leaves.
    notify_consumer_ids_changed_enable: bool = true, "notifyConsumerIdsChangedEnable", "switch", 0..=0, live;
    /// Whether pull consumers are refused.
    reject_pull_consumer_enable: bool = false, "rejectPullConsumerEnable", "switch", 0..=0, live;
    /// Whether lite pull consumers may pull.
    lite_pull_message_enable: bool = true, "litePullMessageEnable", "switch", 0..=0, live;
    /// Whether consumers may filter by SQL92 conditions on properties.
    enable_property_filter: bool = false, "enablePropertyFilter", "switch", 0..=0, live;
    /// Whether transactional messages are refused.
    reject_transaction_message: bool = false, "rejectTransactionMessage", "switch", 0..=0, live;
    /// Age at which the broker first asks about a transaction.
    transaction_time_out: i64 = 6000, "transactionTimeOut", "ms", 1..=86_400_000, live;
    /// Number of checks after which a transaction is given up.
    transaction_check_max: i32 = 15, "transactionCheckMax", "checks", 1..=1_000_000, live;
    /// How often open transactions are checked.
    transaction_check_interval: i64 = 30_000, "transactionCheckInterval", "ms", 10..=86_400_000, live;
    /// Whether replies to requests are stored, too.
    store_reply_message_enable: bool = true, "storeReplyMessageEnable", "switch", 0..=0;
    /// Whether a reset of offsets is stored here and reported to the next pull, instead of being sent to the consumers.
    use_server_side_reset_offset: bool = true, "useServerSideResetOffset", "switch", 0..=0;
    /// Whether clients are kept from changing system topics.
    validate_system_topic_when_update_topic: bool = true, "validateSystemTopicWhenUpdateTopic", "switch", 0..=0;
    /// How often consumer offsets are written.
    flush_consumer_offset_interval: i64 = 5000, "flushConsumerOffsetInterval", "ms", 100..=3_600_000, live;
    /// How often the progress of delayed messages is written.
    flush_delay_offset_interval: i64 = 10_000, "flushDelayOffsetInterval", "ms", 100..=3_600_000, live;
    /// How often the broker registers at its name servers.
    register_name_server_period: i64 = 30_000, "registerNameServerPeriod", "ms", 10_000..=60_000;
    /// How long a name server may take to answer a registration.
    register_broker_timeout_mills: i64 = 24_000, "registerBrokerTimeoutMills", "ms", 100..=120_000;
    /// Time without a heartbeat after which a client is dropped.
    channel_expired_timeout: i64 = 120_000, "channelExpiredTimeout", "ms", 1000..=3_600_000;
    /// Time without renewal after which an orderly consumer's queue lock expires.
    lock_max_live_time: i64 = 60_000, "lockMaxLiveTime", "ms", 100..=3_600_000;
    /// Delays of the levels, from level 1 on.
    message_delay_level: String = names::DELAY_LEVELS.to_owned(),
        "messageDelayLevel", "list of numbers with s, m, h or d", 0..=0;
    /// Whether timer messages can be recalled before they are due.
    recall_message_enable: bool = false, "recallMessageEnable", "switch", 0..=0, live;
    /// Whether timer messages can be recalled also while the broker is not writable.
    allow_recall_when_broker_not_writeable: bool = true, "allowRecallWhenBrokerNotWriteable", "switch", 0..=0, live;
    /// Whether a recall names the topic of its message, too, so that a message of another topic with its unique key is
    /// delivered. Other brokers of 5.5.0 read such a recall only with this option.
    append_topic_for_timer_delete_key: bool = false, "appendTopicForTimerDeleteKey", "switch", 0..=0, live;
    /// Pops and notifications that may wait at once; the next is refused.
    max_pop_polling_size: i32 = 100_000, "maxPopPollingSize", "requests", 1..=10_000_000;
    /// Pops of a group that may wait for one queue, or for any queue; and as many notifications.
    pop_polling_size: i32 = 1024, "popPollingSize", "requests", 1..=10_000_000;
    /// How many of 100 pops read the retry topic first; the others read it last.
    pop_from_retry_probability: i32 = 20, "popFromRetryProbability", "percent", 0..=100;
    /// Whether popped messages that come back go to `%RETRY%group+topic` instead of `%RETRY%group_topic`.
    enable_retry_topic_v2: bool = false, "enableRetryTopicV2", "switch", 0..=0;
    /// Whether, with `enableRetryTopicV2`, pops also read `%RETRY%group_topic`.
    retrieve_message_from_pop_retry_topic_v1: bool = true, "retrieveMessageFromPopRetryTopicV1", "switch", 0..=0;
    /// How groups get messages of topics for which `setConsumeMode` was not used: PULL or POP.
    default_message_request_mode: String = "PULL".to_owned(), "defaultMessageRequestMode", "PULL or POP", 0..=0;
    /// With POP as the default: how many other clients pop a client's queues; -1: all clients pop all queues.
    default_pop_share_queue_num: i32 = -1, "defaultPopShareQueueNum", "clients", -1..=1_000_000;
    /// Whether the broker divides queues among the clients that ask for them; otherwise each gets all.
    server_load_balancer_enable: bool = true, "serverLoadBalancerEnable", "switch", 0..=0;
    /// Maximum messages in one answer to a query by unique key.
    default_query_max_num: i32 = 32, "defaultQueryMaxNum", "messages", 1..=10_000, live;
}

impl Options {
    /// Reads key and value pairs: the broker's own keys, and the store's. Returns unknown keys, for a warning.
    pub fn read<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(Self, Vec<String>), BrokerError> {
        let mut options = Self::default();
        let mut unknown = Vec::new();
        for (key, value) in pairs {
            if !options.set(key, value)? && !options.store.set(key, value)? {
                unknown.push(key.to_owned());
            }
        }
        options.validate()?;
        Ok((options, unknown))
    }

    /// Refuses unusable values. The error names key, value and range.
    pub fn validate(&self) -> Result<(), BrokerError> {
        self.check_ranges()?;
        self.store.validate()?;
        if !self.bind_address.is_empty() && self.bind_address.parse::<IpAddr>().is_err() {
            return Err(BrokerError::Option {
                key: "bindAddress",
                value: self.bind_address.clone(),
                range: "an IP address of this machine, or empty for all".to_owned(),
            });
        }
        if self.broker_id != 0 {
            return Err(BrokerError::Option {
                key: "brokerId",
                value: self.broker_id.to_string(),
                range: "0: slaves are not built yet".to_owned(),
            });
        }
        for (key, name) in [
            ("brokerClusterName", &self.broker_cluster_name),
            ("brokerName", &self.broker_name),
            ("msgTraceTopicName", &self.msg_trace_topic_name),
        ] {
            if !names::is_legal(name) || name.len() > names::TOPIC_LIMIT {
                return Err(BrokerError::Option {
                    key,
                    value: name.clone(),
                    range: format!("1 to {} characters of a-z A-Z 0-9 % | _ -", names::TOPIC_LIMIT),
                });
            }
        }
        if !matches!(self.default_message_request_mode.as_str(), "PULL" | "POP") {
            return Err(BrokerError::Option {
                key: "defaultMessageRequestMode",
                value: self.default_message_request_mode.clone(),
                range: "PULL or POP".to_owned(),
            });
        }
        if (1..=2).contains(&self.listen_port) {
            return Err(BrokerError::Option {
                key: "listenPort",
                value: self.listen_port.to_string(),
                range: "3 to 65535: the fast port is two below; or 0 for a free pair".to_owned(),
            });
        }
        self.name_servers()?;
        self.delay_levels()?;
        read_address_sets(&self.advertised_addresses, false).map_err(|error| BrokerError::Option {
            key: ADVERTISED_ADDRESSES,
            value: self.advertised_addresses.clone(),
            range: format!("set=host:port;set=host:port: {error}"),
        })?;
        Ok(())
    }

    /// The address to listen on.
    pub(crate) fn bind_ip(&self) -> IpAddr {
        let all = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        self.bind_address.parse().unwrap_or(all)
    }

    /// The name servers, each `host:port`.
    pub fn name_servers(&self) -> Result<Vec<String>, BrokerError> {
        let addresses = self
            .namesrv_addr
            .split(';')
            .map(str::trim)
            .filter(|text| !text.is_empty());
        addresses
            .map(|address| match split_host_port(address) {
                Some((_, 1..)) => Ok(address.to_owned()),
                _ => Err(BrokerError::Option {
                    key: "namesrvAddr",
                    value: self.namesrv_addr.clone(),
                    range: "host:port;host:port".to_owned(),
                }),
            })
            .collect()
    }

    /// The delay of each level in milliseconds, level 1 first.
    pub fn delay_levels(&self) -> Result<Vec<i64>, BrokerError> {
        pyrmq_store::parse_levels(&self.message_delay_level).ok_or_else(|| BrokerError::Option {
            key: "messageDelayLevel",
            value: self.message_delay_level.clone(),
            range: "numbers with s, m, h or d between spaces, such as 1s 5s 10s".to_owned(),
        })
    }
}
