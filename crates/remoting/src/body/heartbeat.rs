//! Heartbeats of clients (request 34).

use crate::body::codec::value::body;
use crate::body::codec::value::names;
use std::collections::BTreeSet;

body! {
    /// A group's subscription to a topic (Apache `SubscriptionData`).
    pub struct SubscriptionData {
        /// Whether a class filters; unused since 4.x.
        pub class_filter_mode: bool => "classFilterMode",
        /// Hashes of the tags.
        pub code_set: BTreeSet<i32> => "codeSet",
        /// `TAG` or `SQL92`.
        pub expression_type: String => "expressionType" = "TAG",
        /// Source of the class.
        pub filter_class_source: Option<String> => "filterClassSource",
        /// Filter expression as written.
        pub sub_string: String => "subString",
        /// Version of the subscription, ms since the epoch.
        pub sub_version: i64 => "subVersion",
        /// Tags.
        pub tags_set: BTreeSet<String> => "tagsSet",
        /// Topic name.
        pub topic: String => "topic",
    }

    /// A consumer group of a client (Apache `ConsumerData`).
    pub struct ConsumerData {
        /// Where a new group begins.
        pub consume_from_where: ConsumeFromWhere => "consumeFromWhere",
        /// How it consumes.
        pub consume_type: ConsumeType => "consumeType",
        /// Group name.
        pub group_name: String => "groupName",
        /// Whether one member of the group gets a message, or every member.
        pub message_model: MessageModel => "messageModel",
        /// Subscriptions.
        pub subscription_data_set: Vec<SubscriptionData> => "subscriptionDataSet",
        /// Unit mode.
        pub unit_mode: bool => "unitMode",
    }

    /// A producer group of a client (Apache `ProducerData`).
    pub struct ProducerData {
        /// Group name.
        pub group_name: String => "groupName",
    }

    /// A client and its groups (Apache `HeartbeatData`).
    pub struct HeartbeatData {
        /// Client id.
        pub client_id: String => "clientID",
        /// Consumer groups of the client.
        pub consumer_data_set: Vec<ConsumerData> => "consumerDataSet",
        /// Hash of the data without the client id; 0 when not used.
        pub heartbeat_fingerprint: i32 => "heartbeatFingerprint",
        /// Producer groups of the client.
        pub producer_data_set: Vec<ProducerData> => "producerDataSet",
        /// Whether this is the short form: nothing changed since the last heartbeat with this fingerprint.
        pub without_sub: bool => "withoutSub",
    }
}

names! {
    /// How a group consumes (Apache `ConsumeType`).
    pub enum ConsumeType {
        /// Push.
        Passively => "CONSUME_PASSIVELY",
        /// Pull.
        Actively => "CONSUME_ACTIVELY",
        /// Pop.
        Pop => "CONSUME_POP",
    }

    /// Whether one member of the group gets a message, or every member (Apache `MessageModel`).
    pub enum MessageModel {
        /// One member of the group.
        Clustering => "CLUSTERING",
        /// Every member.
        Broadcasting => "BROADCASTING",
    }

    /// Where a new group begins (Apache `ConsumeFromWhere`).
    pub enum ConsumeFromWhere {
        /// At the end.
        LastOffset => "CONSUME_FROM_LAST_OFFSET",
        /// At the beginning.
        FirstOffset => "CONSUME_FROM_FIRST_OFFSET",
        /// At a time.
        Timestamp => "CONSUME_FROM_TIMESTAMP",
        /// Deprecated.
        LastOffsetAndFromMinWhenBootFirst => "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        /// Deprecated.
        MinOffset => "CONSUME_FROM_MIN_OFFSET",
        /// Deprecated.
        MaxOffset => "CONSUME_FROM_MAX_OFFSET",
    }
}
