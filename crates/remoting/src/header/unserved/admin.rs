//! Administration: statistics by topic and group (315, 317), entries of consume queues (321), offsets that clients
//! report (223, 308), tables asked for page by page (21, 201), and tables of a RocksDB store (354, 355).

crate::header! {
    /// Asks how far all groups have come (Apache `GetConsumeStatsInBrokerHeader`).
    pub struct GetConsumeStatsInBrokerHeader {
        /// Orderly groups only.
        pub is_order: bool => "isOrder",
    }

    /// Asks clients for their offsets (Apache `GetConsumerStatusRequestHeader`).
    pub struct GetConsumerStatusRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Consumer group.
        pub group: &'a str => "group",
        /// Address of one client; absent for all.
        pub client_addr: Option<&'a str> => "clientAddr",
    }

    /// Asks for the smallest offsets of other groups (Apache `QueryCorrectionOffsetHeader`).
    pub struct QueryCorrectionOffsetHeader<'a> {
        /// Groups, joined by commas.
        pub filter_groups: Option<&'a str> => "filterGroups",
        /// Group to compare with.
        pub compare_group: &'a str => "compareGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
    }

    /// Asks for all groups or a page of them (Apache `GetAllSubscriptionGroupRequestHeader`).
    pub struct GetAllSubscriptionGroupRequestHeader<'a> {
        /// First group wanted.
        pub group_seq: Option<i32> => "groupSeq",
        /// DataVersion as JSON that the asker has.
        pub data_version: Option<&'a str> => "dataVersion",
        /// Groups wanted at most.
        pub max_group_num: Option<i32> => "maxGroupNum",
    }

    /// How many groups there are (Apache `GetAllSubscriptionGroupResponseHeader`).
    pub struct GetAllSubscriptionGroupResponseHeader {
        /// Groups in all.
        pub total_group_num: i32 => "totalGroupNum",
    }

    /// Asks for entries of a consume queue (Apache `QueryConsumeQueueRequestHeader`).
    pub struct QueryConsumeQueueRequestHeader<'a> {
        /// Topic name.
        pub topic: Option<&'a str> => "topic",
        /// Queue number.
        pub queue_id: Option<i32> => "queueId",
        /// First index wanted.
        pub index: Option<i64> => "index",
        /// Entries wanted.
        pub count: Option<i32> => "count",
        /// Consumer group.
        pub consumer_group: Option<&'a str> => "consumerGroup",
    }

    /// Asks for all topics or a page of them (Apache `GetAllTopicConfigRequestHeader`).
    pub struct GetAllTopicConfigRequestHeader<'a> {
        /// First topic wanted.
        pub topic_seq: Option<i32> => "topicSeq",
        /// DataVersion as JSON that the asker has.
        pub data_version: Option<&'a str> => "dataVersion",
        /// Topics wanted at most.
        pub max_topic_num: Option<i32> => "maxTopicNum",
    }

    /// Asks for one statistic (Apache `ViewBrokerStatsDataRequestHeader`).
    pub struct ViewBrokerStatsDataRequestHeader<'a> {
        /// Name of the statistic.
        pub stats_name: &'a str => "statsName",
        /// Its key.
        pub stats_key: &'a str => "statsKey",
    }

    /// Asks whether two forms of consume queues agree (Apache `CheckRocksdbCqWriteProgressRequestHeader`).
    pub struct CheckRocksdbCqWriteProgressRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Only after this store time, ms.
        pub check_store_time: Option<i64> => "checkStoreTime",
    }

    /// Asks for tables to be written as JSON files (Apache `ExportRocksDBConfigToJsonRequestHeader`).
    pub struct ExportRocksDBConfigToJsonRequestHeader<'a> {
        /// Which tables.
        pub config_type: &'a str => "configType",
    }
}
