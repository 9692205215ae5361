//! Lists and tables of names.

use crate::body::codec::value::body;
use std::collections::BTreeMap;

body! {
    /// Topic names (Apache `TopicList`).
    pub struct TopicList {
        /// Broker address, `ip:port`.
        pub broker_addr: Option<String> => "brokerAddr",
        /// Topic names.
        pub topic_list: Vec<String> => "topicList",
    }

    /// Group names (Apache `GroupList`).
    pub struct GroupList {
        /// Group names.
        pub group_list: Vec<String> => "groupList",
    }

    /// Values by key (Apache `KVTable`).
    pub struct KVTable {
        /// Values by key.
        pub table: BTreeMap<String, String> => "table",
    }

    /// Client ids of a group (Apache `GetConsumerListByGroupResponseBody`).
    pub struct GetConsumerListByGroupResponseBody {
        /// Client ids.
        pub consumer_id_list: Vec<String> => "consumerIdList",
    }
}
