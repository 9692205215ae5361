//! Administration: tables asked for page by page (21, 201), and tables of a RocksDB store (354, 355).

crate::header! {
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

    /// Asks for all topics or a page of them (Apache `GetAllTopicConfigRequestHeader`).
    pub struct GetAllTopicConfigRequestHeader<'a> {
        /// First topic wanted.
        pub topic_seq: Option<i32> => "topicSeq",
        /// DataVersion as JSON that the asker has.
        pub data_version: Option<&'a str> => "dataVersion",
        /// Topics wanted at most.
        pub max_topic_num: Option<i32> => "maxTopicNum",
    }

    /// Asks whether two forms of consume queues agree (Apache `CheckRocksdbCqWriteProgressRequestHeader`).
    pub struct CheckRocksdbCqWriteProgressRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic",
        /// The check covers messages stored after this time, ms.
        pub check_store_time: Option<i64> => "checkStoreTime",
    }

    /// Asks for tables to be written as JSON files (Apache `ExportRocksDBConfigToJsonRequestHeader`).
    pub struct ExportRocksDBConfigToJsonRequestHeader<'a> {
        /// The tables to write.
        pub config_type: &'a str => "configType",
    }
}
