//! What a push consumer says about itself (307, 309); brokers forward it unread.

use crate::body::codec::value::body;
use crate::body::{MessageQueue, SubscriptionData};
use std::collections::BTreeMap;

body! {
    /// How consuming one message went (answer to 309) (Apache `ConsumeMessageDirectlyResult`).
    pub struct ConsumeMessageDirectlyResult {
        /// Whether offsets are committed automatically.
        pub auto_commit: bool => "autoCommit" = true,
        /// `CR_SUCCESS`, `CR_LATER`, `CR_ROLLBACK`, `CR_COMMIT`, `CR_THROW_EXCEPTION` or `CR_RETURN_NULL`.
        pub consume_result: Option<String> => "consumeResult",
        /// Whether the consumer is orderly.
        pub order: bool => "order",
        /// Error text.
        pub remark: Option<String> => "remark",
        /// Time it took, ms.
        pub spent_time_mills: i64 => "spentTimeMills",
    }

    /// State of one queue in a consumer (Apache `ProcessQueueInfo`).
    pub struct ProcessQueueInfo {
        /// Number of messages held.
        pub cached_msg_count: i32 => "cachedMsgCount",
        /// Largest offset held.
        pub cached_msg_max_offset: i64 => "cachedMsgMaxOffset",
        /// Smallest offset held.
        pub cached_msg_min_offset: i64 => "cachedMsgMinOffset",
        /// MiB held.
        pub cached_msg_size_in_mib: i32 => "cachedMsgSizeInMiB",
        /// Committed offset.
        pub commit_offset: i64 => "commitOffset",
        /// Whether the queue was taken from this consumer; Apache's spelling.
        pub droped: bool => "droped",
        /// When it consumed last, ms.
        pub last_consume_timestamp: i64 => "lastConsumeTimestamp",
        /// When it locked last, ms.
        pub last_lock_timestamp: i64 => "lastLockTimestamp",
        /// When it pulled last, ms.
        pub last_pull_timestamp: i64 => "lastPullTimestamp",
        /// Whether the queue is locked for this consumer.
        pub locked: bool => "locked",
        /// Messages in the running transaction.
        pub transaction_msg_count: i32 => "transactionMsgCount",
        /// Largest offset in it.
        pub transaction_msg_max_offset: i64 => "transactionMsgMaxOffset",
        /// Smallest offset in it.
        pub transaction_msg_min_offset: i64 => "transactionMsgMinOffset",
        /// Number of attempts to unlock.
        pub try_unlock_times: i64 => "tryUnlockTimes",
    }

    /// State of one popped queue in a consumer (Apache `PopProcessQueueInfo`).
    pub struct PopProcessQueueInfo {
        /// Whether the queue was taken from this consumer; Apache's spelling.
        pub droped: bool => "droped",
        /// When it popped last, ms.
        pub last_pop_timestamp: i64 => "lastPopTimestamp",
        /// Messages not acknowledged.
        pub wait_ack_count: i32 => "waitAckCount",
    }

    /// Rates of one topic in a consumer (Apache `ConsumeStatus`).
    pub struct ConsumeStatus {
        /// Failures in the last hour.
        pub consume_failed_msgs: i64 => "consumeFailedMsgs",
        /// Failures per second.
        pub consume_failed_tps: f64 => "consumeFailedTPS",
        /// Successes per second.
        pub consume_ok_tps: f64 => "consumeOKTPS",
        /// Average duration of a listener call, ms.
        pub consume_rt: f64 => "consumeRT",
        /// Average duration of a pull, ms.
        pub pull_rt: f64 => "pullRT",
        /// Messages pulled per second.
        pub pull_tps: f64 => "pullTPS",
    }

    /// State of a consumer (answer to 307) (Apache `ConsumerRunningInfo`).
    pub struct ConsumerRunningInfo {
        /// Thread dump.
        pub jstack: Option<String> => "jstack",
        /// State by queue, when popping.
        pub mq_pop_table: BTreeMap<MessageQueue, PopProcessQueueInfo> => "mqPopTable",
        /// State by queue.
        pub mq_table: BTreeMap<MessageQueue, ProcessQueueInfo> => "mqTable",
        /// The consumer's settings.
        pub properties: BTreeMap<String, String> => "properties",
        /// Rates by topic.
        pub status_table: BTreeMap<String, ConsumeStatus> => "statusTable",
        /// Subscriptions.
        pub subscription_set: Vec<SubscriptionData> => "subscriptionSet",
        /// Information that the application added.
        pub user_consumer_info: BTreeMap<String, String> => "userConsumerInfo",
    }
}
