//! Consumer groups and their settings (`subscriptionGroup.json`, requests 200, 201, 225, 352, 353).

use crate::body::codec::value::body;
use crate::body::{DataVersion, Json, SubscriptionData};
use std::collections::BTreeMap;

body! {
    /// When a message is delivered again (Apache `GroupRetryPolicy`).
    pub struct GroupRetryPolicy {
        /// The delays of a customized policy.
        pub customized_retry_policy: Option<Json> => "customizedRetryPolicy",
        /// The delays of an exponential policy.
        pub exponential_retry_policy: Option<Json> => "exponentialRetryPolicy",
        /// `CUSTOMIZED` or `EXPONENTIAL`.
        pub policy_type: String => "type" = "CUSTOMIZED",
        ..unknown_members
    }

    /// A subscription that a group must have (Apache `SimpleSubscriptionData`).
    pub struct SimpleSubscriptionData {
        /// Filter expression.
        pub expression: Option<String> => "expression",
        /// `TAG` or `SQL92`.
        pub expression_type: Option<String> => "expressionType",
        /// Topic name.
        pub topic: Option<String> => "topic",
        /// Version of the subscription, ms since the epoch.
        pub version: i64 => "version",
        ..unknown_members
    }

    /// Settings of a group (Apache `SubscriptionGroupConfig`).
    pub struct SubscriptionGroupConfig {
        /// Attributes by name.
        pub attributes: BTreeMap<String, String> => "attributes",
        /// Broker to consume from.
        pub broker_id: i64 => "brokerId",
        /// Whether the group may broadcast.
        pub consume_broadcast_enable: bool => "consumeBroadcastEnable" = true,
        /// Whether the group may consume.
        pub consume_enable: bool => "consumeEnable" = true,
        /// Whether the group may begin at the smallest offset.
        pub consume_from_min_enable: bool => "consumeFromMinEnable" = true,
        /// Whether the group consumes in order.
        pub consume_message_orderly: bool => "consumeMessageOrderly",
        /// Maximum duration of consuming one message, in minutes.
        pub consume_timeout_minute: i32 => "consumeTimeoutMinute" = 15,
        /// Group name.
        pub group_name: String => "groupName",
        /// When a message is delivered again.
        pub group_retry_policy: GroupRetryPolicy => "groupRetryPolicy",
        /// System flag of the group.
        pub group_sys_flag: i32 => "groupSysFlag",
        /// Whether members are notified of changes of the group.
        pub notify_consumer_ids_changed_enable: bool => "notifyConsumerIdsChangedEnable" = true,
        /// Maximum number of deliveries before the dead-letter topic.
        pub retry_max_times: i32 => "retryMaxTimes" = 16,
        /// Queues of the retry topic.
        pub retry_queue_nums: i32 => "retryQueueNums" = 1,
        /// Subscriptions.
        pub subscription_data_set: Option<Vec<SimpleSubscriptionData>> => "subscriptionDataSet",
        /// Broker id for slow consumers.
        pub which_broker_when_consume_slowly: i64 => "whichBrokerWhenConsumeSlowly" = 1,
        ..unknown_members
    }

    /// All groups with their version (Apache `SubscriptionGroupWrapper`).
    pub struct SubscriptionGroupWrapper {
        /// Version of the table.
        pub data_version: DataVersion => "dataVersion",
        /// Permission bits that are forbidden, by group and topic.
        pub forbidden_table: BTreeMap<String, BTreeMap<String, i32>> => "forbiddenTable",
        /// Groups by name.
        pub subscription_group_table: BTreeMap<String, SubscriptionGroupConfig> => "subscriptionGroupTable",
        ..unknown_members
    }

    /// Several groups (Apache `SubscriptionGroupList`).
    pub struct SubscriptionGroupList {
        /// Groups.
        pub group_config_list: Vec<SubscriptionGroupConfig> => "groupConfigList",
    }

    /// Whether a group may read a topic (answer to 353) (Apache `GroupForbidden`).
    pub struct GroupForbidden {
        /// Consumer group.
        pub group: Option<String> => "group",
        /// Whether the group may read the topic.
        pub readable: Option<bool> => "readable",
        /// Topic name.
        pub topic: Option<String> => "topic",
    }

    /// Subscription of a group (answer to 345) (Apache `QuerySubscriptionResponseBody`).
    pub struct QuerySubscriptionResponseBody {
        /// Consumer group.
        pub group: Option<String> => "group",
        /// Subscription.
        pub subscription_data: Option<SubscriptionData> => "subscriptionData",
        /// Topic name.
        pub topic: Option<String> => "topic",
    }
}

impl SubscriptionGroupConfig {
    /// A group with Apache's defaults.
    pub fn new(group_name: impl Into<String>) -> Self {
        Self {
            group_name: group_name.into(),
            ..Self::default()
        }
    }
}
