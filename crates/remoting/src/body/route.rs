//! Routes: the brokers of a topic (response to request 105). Old clients get integer member names bare, others quoted.

use crate::body::codec::value::body;
use crate::body::{Style, TopicQueueMappingInfo};
use std::collections::BTreeMap;

body! {
    /// Queues of a topic on one broker (Apache `QueueData`).
    pub struct QueueData {
        /// Broker name.
        pub broker_name: String => "brokerName",
        /// Permission bits: 4 read, 2 write, 1 inherit.
        pub perm: i32 => "perm",
        /// Queues that may be read.
        pub read_queue_nums: i32 => "readQueueNums",
        /// System flag of the topic; 4.6 names it `topicSynFlag`.
        pub topic_sys_flag: i32 => "topicSysFlag" | "topicSynFlag",
        /// Queues that may be written.
        pub write_queue_nums: i32 => "writeQueueNums",
    }

    /// Brokers of one name (Apache `BrokerData`).
    pub struct BrokerData {
        /// Addresses by broker id; 0 is the master.
        pub broker_addrs: BTreeMap<i64, String> => "brokerAddrs",
        /// Broker name.
        pub broker_name: String => "brokerName",
        /// Cluster name.
        pub cluster: String => "cluster",
        /// Whether a slave may act for its master.
        pub enable_acting_master: bool => "enableActingMaster",
        /// Zone.
        pub zone_name: Option<String> => "zoneName",
    }

    /// The route of a topic (Apache `TopicRouteData`).
    pub struct TopicRouteData {
        /// Brokers that have the topic.
        pub broker_datas: Vec<BrokerData> => "brokerDatas",
        /// Filter servers by broker address.
        pub filter_server_table: BTreeMap<String, Vec<String>> => "filterServerTable",
        /// Order configuration, `broker:queues;broker:queues`.
        pub order_topic_conf: Option<String> => "orderTopicConf",
        /// Queues by broker.
        pub queue_datas: Vec<QueueData> => "queueDatas",
        /// Mappings of a static topic, by broker.
        pub topic_queue_mapping_by_broker: Option<BTreeMap<String, TopicQueueMappingInfo>> => "topicQueueMappingByBroker",
    }
}

/// The JSON style of a client's route: standard JSON from 4.9.4 on, or if the client asks for it.
pub fn route_style(version: i32, accept_standard_json_only: Option<bool>) -> Style {
    if version >= V4_9_4 || accept_standard_json_only == Some(true) {
        Style::STANDARD
    } else {
        Style::PLAIN
    }
}

/// Version ordinal of 4.9.4 (Apache `MQVersion.V4_9_4`).
const V4_9_4: i32 = 401;
