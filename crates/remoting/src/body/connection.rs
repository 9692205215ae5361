//! Connections of groups (answers to requests 203, 204, 328).

use crate::body::codec::value::body;
use crate::body::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use crate::command::Language;
use std::collections::BTreeMap;

body! {
    /// One client (Apache `Connection`).
    pub struct Connection {
        /// The client's address, `ip:port`.
        pub client_addr: String => "clientAddr",
        /// Client id.
        pub client_id: String => "clientId",
        /// The client's language.
        pub language: Language => "language",
        /// The client's version ordinal.
        pub version: i32 => "version",
    }

    /// Consumers of a group (Apache `ConsumerConnection`).
    pub struct ConsumerConnection {
        /// Connections.
        pub connection_set: Vec<Connection> => "connectionSet",
        /// Where a new group begins.
        pub consume_from_where: ConsumeFromWhere => "consumeFromWhere",
        /// How it consumes.
        pub consume_type: ConsumeType => "consumeType",
        /// Whether one member of the group gets a message, or every member.
        pub message_model: MessageModel => "messageModel",
        /// Subscriptions by topic.
        pub subscription_table: BTreeMap<String, SubscriptionData> => "subscriptionTable",
    }

    /// Producers of a group (Apache `ProducerConnection`).
    pub struct ProducerConnection {
        /// Connections.
        pub connection_set: Vec<Connection> => "connectionSet",
    }

    /// One producer (Apache `ProducerInfo`).
    pub struct ProducerInfo {
        /// Client id.
        pub client_id: String => "clientId",
        /// The client's language.
        pub language: Language => "language",
        /// When the last heartbeat came, ms since the epoch.
        pub last_update_timestamp: i64 => "lastUpdateTimestamp",
        /// The client's address, `ip:port`.
        pub remote_ip: String => "remoteIP",
        /// The client's version ordinal.
        pub version: i32 => "version",
    }

    /// All producers (Apache `ProducerTableInfo`).
    pub struct ProducerTableInfo {
        /// Clients by group.
        pub data: BTreeMap<String, Vec<ProducerInfo>> => "data",
    }
}
