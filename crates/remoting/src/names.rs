//! Names that every RocketMQ server and client agrees on: system topics, prefixes, permission bits, legal characters
//! (Apache `TopicValidator`, `MixAll`, `PermName`).

/// Prefix of a group's retry topic (Apache `MixAll.RETRY_GROUP_TOPIC_PREFIX`).
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of a group's dead-letter topic (Apache `MixAll.DLQ_GROUP_TOPIC_PREFIX`).
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of the system topics that newer versions added (Apache `TopicValidator.SYSTEM_TOPIC_PREFIX`).
pub const SYSTEM_PREFIX: &str = "rmq_sys_";

/// Prefix of the topics by which brokers tell each other about their members; they are never moved to an acting master
/// (Apache `TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX`).
pub const SYNC_BROKER_MEMBER_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";

/// Template of automatically created topics (Apache `TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC`).
pub const TEMPLATE_TOPIC: &str = "TBW102";
/// Where messages of delay levels wait, one queue for each level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Where timer messages wait (Apache `TimerMessageStore.TIMER_TOPIC`).
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// Prefix of the topic of pop check points and acknowledgements (Apache `PopAckConstants.REVIVE_TOPIC`).
pub const REVIVE_TOPIC: &str = "rmq_sys_REVIVE_LOG_";
/// Group whose offsets say how far check points are done (Apache `PopAckConstants.REVIVE_GROUP`).
pub const REVIVE_GROUP: &str = "CID_RMQ_SYS_REVIVE_GROUP";
/// Revive queue in the handles of ordered POP, which has no check points (Apache
/// `KeyBuilder.POP_ORDER_REVIVE_QUEUE`).
pub const POP_ORDER_REVIVE_QUEUE: i32 = 999;
/// Transactional messages that are not yet committed.
pub const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Which transactional messages were committed or rolled back.
pub const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Transactional messages whose producer never answered.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Apache's self test.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Apache's benchmark.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// Events of moved consumer offsets, a leftover of 3.x.
pub const OFFSET_MOVED_TOPIC: &str = "OFFSET_MOVED_EVENT";

/// Topics that RocketMQ itself uses (Apache `TopicValidator.SYSTEM_TOPIC_SET`).
pub const SYSTEM_TOPICS: [&str; 9] = [
    TEMPLATE_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    TRACE_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
];
/// Topics that clients must not send to (Apache `TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET`).
pub const NOT_ALLOWED_SEND_TOPICS: [&str; 6] = [
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
];

/// Prefix of the groups of brokers and tools (Apache `MixAll.CID_RMQ_SYS_PREFIX`).
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// Group whose offsets say how far transactions are done (Apache `TransactionalMessageUtil`).
pub const TRANSACTION_GROUP: &str = "CID_RMQ_SYS_TRANS";

/// Group of Apache's admin tools (Apache `MixAll.TOOLS_CONSUMER_GROUP`).
pub const TOOLS_GROUP: &str = "TOOLS_CONSUMER";
/// Group of Apache's filter servers (Apache `MixAll.FILTERSRV_CONSUMER_GROUP`).
pub const FILTER_SERVER_GROUP: &str = "FILTERSRV_CONSUMER";
/// Group of Apache's self test (Apache `MixAll.SELF_TEST_CONSUMER_GROUP`).
pub const SELF_TEST_GROUP: &str = "SELF_TEST_C_GROUP";
/// Group of the HTTP proxy of ONS (Apache `MixAll.ONS_HTTP_PROXY_GROUP`).
pub const ONS_HTTP_PROXY_GROUP: &str = "CID_ONS-HTTP-PROXY";
/// Group of pulls through the API of ONS (Apache `MixAll.CID_ONSAPI_PULL_GROUP`).
pub const ONS_API_PULL_GROUP: &str = "CID_ONSAPI_PULL";
/// Group of the API of ONS for permissions (Apache `MixAll.CID_ONSAPI_PERMISSION_GROUP`).
pub const ONS_API_PERMISSION_GROUP: &str = "CID_ONSAPI_PERMISSION";
/// Group of the API of ONS for owners (Apache `MixAll.CID_ONSAPI_OWNER_GROUP`).
pub const ONS_API_OWNER_GROUP: &str = "CID_ONSAPI_OWNER";

/// Pauses of the delay levels 1 to 18 (Apache's default `messageDelayLevel`).
pub const DELAY_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
/// [`DELAY_LEVELS`] in seconds.
pub const DELAY_LEVELS_S: [u64; 18] = [
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
];

/// Longest name of an ordinary topic, in bytes (Apache `TopicValidator.TOPIC_MAX_LENGTH`).
pub const TOPIC_LIMIT: usize = 127;
/// Longest name of a retry or dead-letter topic, in bytes (Apache `TopicValidator.RETRY_OR_DLQ_TOPIC_MAX_LENGTH`).
pub const RETRY_TOPIC_LIMIT: usize = 255;
/// Longest name of a new group, in bytes (Apache `TopicValidator.GROUP_MAX_LENGTH`).
pub const GROUP_LIMIT: usize = 120;

/// Permission bit: may be read (Apache `PermName.PERM_READ`).
pub const PERM_READ: i32 = 4;
/// Permission bit: may be written.
pub const PERM_WRITE: i32 = 2;
/// Permission bit: new topics may be created with this one as their template.
pub const PERM_INHERIT: i32 = 1;

/// Whether a name is not empty and has only Apache's characters: `a-z A-Z 0-9 % | _ -`.
pub fn is_legal(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_legal_byte)
}

fn is_legal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-')
}

/// Returns a name for an error or a remark: cut to 255 characters, which are enough for every legal name, because an
/// unknown peer may send a megabyte.
pub fn shortened(name: &str) -> String {
    name.chars().take(RETRY_TOPIC_LIMIT).collect()
}

/// The retry topic of a group (Apache `MixAll.getRetryTopic`).
pub fn retry_topic(group: &str) -> String {
    [RETRY_PREFIX, group].concat()
}

/// The dead-letter topic of a group (Apache `MixAll.getDLQTopic`).
pub fn dead_letter_topic(group: &str) -> String {
    [DLQ_PREFIX, group].concat()
}

/// The group of a retry topic; `None` for other topics. In a retry topic of POP the topic follows the group.
pub fn group_of_retry(topic: &str) -> Option<&str> {
    topic.strip_prefix(RETRY_PREFIX)
}

/// The retry topic of POP for a topic and group (Apache `KeyBuilder.buildPopRetryTopicV1`).
pub fn pop_retry_topic(topic: &str, group: &str) -> String {
    [RETRY_PREFIX, group, "_", topic].concat()
}

/// Like [`pop_retry_topic`], with `enableRetryTopicV2` (Apache `KeyBuilder.buildPopRetryTopicV2`).
pub fn pop_retry_topic_v2(topic: &str, group: &str) -> String {
    [RETRY_PREFIX, group, "+", topic].concat()
}

/// Whether this is a retry topic of POP with `enableRetryTopicV2`: no other name has a `+`.
pub fn is_pop_retry_v2(topic: &str) -> bool {
    is_retry(topic) && topic.contains('+')
}

/// Whether this is a group's retry topic.
pub fn is_retry(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX)
}
