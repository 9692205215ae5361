//! Broker settings and statistics: requests 26, 315, 354, 355 and the statistics of a queue.

crate::header! {
    /// Version of the settings in the body (Apache `GetBrokerConfigResponseHeader`).
    pub struct GetBrokerConfigResponseHeader<'a> {
        /// DataVersion as JSON.
        pub version: &'a str => "version",
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

    /// Asks how many messages came in a time (Apache `StatisticsMessagesRequestHeader`).
    pub struct StatisticsMessagesRequestHeader<'a> {
        /// Consumer group.
        pub consumer_group: &'a str => "consumerGroup",
        /// Topic name.
        pub topic: &'a str => "topic",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Begin, ms since the epoch.
        pub from_time: Option<i64> => "fromTime",
        /// End, ms since the epoch.
        pub to_time: Option<i64> => "toTime",
    }
}
