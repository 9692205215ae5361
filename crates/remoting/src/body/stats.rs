//! Progress of queues, groups and brokers, and their counters (202, 208, 303, 315, 317).

use crate::body::MessageQueue;
use crate::body::codec::value::body;
use std::collections::BTreeMap;

body! {
    /// Offsets of one queue (Apache `TopicOffset`).
    pub struct TopicOffset {
        /// When the last message came, ms since the epoch.
        pub last_update_timestamp: i64 => "lastUpdateTimestamp",
        /// Largest offset of the queue.
        pub max_offset: i64 => "maxOffset",
        /// Smallest offset of the queue.
        pub min_offset: i64 => "minOffset",
    }

    /// Offsets of a topic (answer to 202) (Apache `TopicStatsTable`).
    pub struct TopicStatsTable {
        /// By queue.
        pub offset_table: BTreeMap<MessageQueue, TopicOffset> => "offsetTable",
        /// Messages stored per second.
        pub topic_put_tps: f64 => "topicPutTps",
    }

    /// A group's progress in one queue (Apache `OffsetWrapper`).
    pub struct OffsetWrapper {
        /// Largest offset of the queue.
        pub broker_offset: i64 => "brokerOffset",
        /// The group's committed offset.
        pub consumer_offset: i64 => "consumerOffset",
        /// Store time of the last consumed message, ms.
        pub last_timestamp: i64 => "lastTimestamp",
        /// Offset up to which the group has pulled.
        pub pull_offset: i64 => "pullOffset",
    }

    /// A group's progress (response to 208) (Apache `ConsumeStats`).
    pub struct ConsumeStats {
        /// Messages consumed per second.
        pub consume_tps: f64 => "consumeTps",
        /// By queue.
        pub offset_table: BTreeMap<MessageQueue, OffsetWrapper> => "offsetTable",
    }

    /// Times of one queue (Apache `QueueTimeSpan`).
    pub struct QueueTimeSpan {
        /// Store time of the last consumed message, ms.
        pub consume_time_stamp: i64 => "consumeTimeStamp",
        /// Age of the group's next message, ms.
        pub delay_time: i64 => "delayTime",
        /// Store time of the last message, ms.
        pub max_time_stamp: i64 => "maxTimeStamp",
        /// Queue.
        pub message_queue: Option<MessageQueue> => "messageQueue",
        /// Store time of the first message, ms.
        pub min_time_stamp: i64 => "minTimeStamp",
    }

    /// Store times of a topic's messages and the group's progress in them (response to 303) (Apache
    /// `QueryConsumeTimeSpanBody`).
    pub struct QueryConsumeTimeSpanBody {
        /// By queue.
        pub consume_time_span_set: Vec<QueueTimeSpan> => "consumeTimeSpanSet",
    }

    /// Progress of all groups (response to 317) (Apache `ConsumeStatsList`).
    pub struct ConsumeStatsList {
        /// Broker address, `ip:port`.
        pub broker_addr: Option<String> => "brokerAddr",
        /// By group.
        pub consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>> => "consumeStatsList",
        /// Messages not consumed.
        pub total_diff: i64 => "totalDiff",
        /// Messages pulled and not consumed.
        pub total_inflight_diff: i64 => "totalInflightDiff",
    }

    /// One statistic in one span (Apache `BrokerStatsItem`).
    pub struct BrokerStatsItem {
        /// Average per call.
        pub avgpt: f64 => "avgpt",
        /// Sum in the span.
        pub sum: i64 => "sum",
        /// Average per second.
        pub tps: f64 => "tps",
    }

    /// One statistic (answer to 315) (Apache `BrokerStatsData`).
    pub struct BrokerStatsData {
        /// Last day.
        pub stats_day: BrokerStatsItem => "statsDay",
        /// Last hour.
        pub stats_hour: BrokerStatsItem => "statsHour",
        /// Last minute.
        pub stats_minute: BrokerStatsItem => "statsMinute",
    }
}
