//! Administration: offsets that clients are given (220, 308), statistics by topic and group (315,
//! 317), and entries of consume queues (321).

use crate::body::value::body;
use crate::body::{ConsumeStats, SubscriptionData};
use std::collections::BTreeMap;

body! {
    /// A queue with its new offset (Apache `MessageQueueForC`).
    pub struct MessageQueueForC {
        /// Broker name.
        pub broker_name: String => "brokerName",
        /// Offset.
        pub offset: i64 => "offset",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Topic name.
        pub topic: String => "topic",
    }

    /// New offsets as a list, for C++ clients (Apache `ResetOffsetBodyForC`).
    pub struct ResetOffsetBodyForC {
        /// By queue.
        pub offset_table: Vec<MessageQueueForC> => "offsetTable",
    }

    /// Smallest offsets of other groups (answer to 308) (Apache `QueryCorrectionOffsetBody`).
    pub struct QueryCorrectionOffsetBody {
        /// Smallest offsets by queue number.
        pub correction_offsets: BTreeMap<i32, i64> => "correctionOffsets",
    }

    /// How far all groups have come (answer to 317) (Apache `ConsumeStatsList`).
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
        /// Per call.
        pub avgpt: f64 => "avgpt",
        /// Sum.
        pub sum: i64 => "sum",
        /// Per second.
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

    /// One entry of a consume queue (Apache `ConsumeQueueData`).
    pub struct ConsumeQueueData {
        /// Filter bits.
        pub bit_map: Option<String> => "bitMap",
        /// The filter matches.
        pub eval: bool => "eval",
        /// Entry of the extended file.
        pub extend_data_json: Option<String> => "extendDataJson",
        /// Why not.
        pub msg: Option<String> => "msg",
        /// Commit log offset.
        pub physic_offset: i64 => "physicOffset",
        /// Bytes of the record.
        pub physic_size: i32 => "physicSize",
        /// Hash of the tags.
        pub tags_code: i64 => "tagsCode",
    }

    /// Entries of a consume queue (answer to 321) (Apache `QueryConsumeQueueResponseBody`).
    pub struct QueryConsumeQueueResponseBody {
        /// Filter data as text.
        pub filter_data: Option<String> => "filterData",
        /// Largest index.
        pub max_queue_index: i64 => "maxQueueIndex",
        /// Smallest index.
        pub min_queue_index: i64 => "minQueueIndex",
        /// Entries.
        pub queue_data: Vec<ConsumeQueueData> => "queueData",
        /// Subscription.
        pub subscription_data: Option<SubscriptionData> => "subscriptionData",
    }
}
