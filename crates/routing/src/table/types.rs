//! What goes into the tables and what comes out of a registration.

use super::registered_topics::RegisteredTopics;
use thiserror::Error;

/// Timeout of a broker that sets none: silence after which it expires (Apache `DEFAULT_BROKER_CHANNEL_EXPIRED_TIME`).
pub const DEFAULT_TIMEOUT_MS: i64 = 120_000;

/// One broker process: (cluster, address).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerKey {
    /// Cluster name.
    pub cluster: String,
    /// `host:port`.
    pub address: String,
}

impl BrokerKey {
    /// Creates a key from borrowed text.
    pub fn new(cluster: &str, address: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            address: address.to_owned(),
        }
    }
}

/// Switches and limits (Apache `NamesrvConfig`). All are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// `supportActingMaster`.
    pub support_acting_master: bool,
    /// `deleteTopicWithBrokerRegistration`.
    pub delete_topic_with_broker_registration: bool,
    /// `orderMessageEnable`.
    pub order_message_enable: bool,
    /// Maximum number of topics of one broker name; `None`: no limit.
    pub max_topics_per_broker: Option<usize>,
    /// Maximum number of topics of all broker names together, counted once for each name that has it; `None`: no limit.
    pub max_topics: Option<usize>,
    /// Maximum number of broker names, with [`MAX_IDS_PER_NAME`] ids each and [`MEAN_IDS_PER_NAME`] on average; `None`:
    /// no limit.
    pub max_brokers: Option<usize>,
}

/// Maximum number of ids of one broker name, a master's and its slaves', if names are limited.
pub const MAX_IDS_PER_NAME: usize = 1000;
/// Maximum average number of ids of the allowed names.
pub const MEAN_IDS_PER_NAME: usize = 10;

/// A broker's registration.
#[derive(Debug, Clone, Copy)]
pub struct Registration<'a> {
    /// Cluster name.
    pub cluster: &'a str,
    /// `host:port` for clients.
    pub address: &'a str,
    /// Broker name.
    pub name: &'a str,
    /// 0 is the master.
    pub id: i64,
    /// `host:port` for slaves.
    pub ha_address: &'a str,
    /// Zone, if it names one.
    pub zone: Option<&'a str>,
    /// Silence after which it expires; `None`: [`DEFAULT_TIMEOUT_MS`].
    pub timeout_ms: Option<i64>,
    /// `None` if the header lacks it: a broker before 5.0.
    pub acting_master: Option<bool>,
    /// The broker's topics.
    pub topics: &'a dyn RegisteredTopics,
    /// The broker's filter servers; `None` if the body lacks them.
    pub filter_servers: Option<&'a [String]>,
    /// The broker's address sets, each with the `host:port` that clients of that network use.
    pub advertised: &'a [(String, String)],
    /// The connection that it arrived on.
    pub peer: u64,
    /// Apache's ordinal of its software version.
    pub software: i32,
    /// Hash by which [`RouteTable::refresh`](super::RouteTable::refresh) recognises an equal registration; `None`: it
    /// is not kept.
    pub fingerprint: Option<u64>,
    /// Hash by which [`RouteTable::refresh_version`](super::RouteTable::refresh_version) recognises a registration
    /// that differs only in its version and names no static topics; `None`: it is not kept.
    pub content_fingerprint: Option<u64>,
}

/// Why a registration is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// A required field is empty: the broker could not be distinguished from others, or never be removed.
    #[error("a registration needs a {0}")]
    Empty(&'static str),
    /// An unknown broker registers a single topic: it must send its whole table first.
    #[error("broker {name} with id {id} is not registered yet: send the whole topic table first")]
    SingleTopic {
        /// Broker name.
        name: String,
        /// Broker id.
        id: i64,
    },
    /// More topics than one broker name may have.
    #[error("broker {name} would have {count} topics: the limit is {limit} (maxTopicsPerBroker)")]
    TooManyTopics {
        /// Broker name.
        name: String,
        /// The number, including existing topics.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// More topics than all broker names together may have.
    #[error(
        "broker {name} would bring {more} new topics, and all brokers together have {has} already: the limit is {limit} (maxTopics)"
    )]
    TooManyTopicsOfAll {
        /// Broker name.
        name: String,
        /// Number of its new topics.
        more: usize,
        /// Topics of all broker names.
        has: usize,
        /// The limit.
        limit: usize,
    },
    /// More broker names than there may be.
    #[error("broker {name} is not known, and the limit of {limit} brokers is reached (maxBrokers)")]
    TooManyBrokers {
        /// Broker name.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// More ids than one name may have.
    #[error(
        "broker {name} has {limit} ids already, so {id} is refused: a name is for a master and its slaves, other masters need \
         names of their own"
    )]
    TooManyIds {
        /// Broker name.
        name: String,
        /// Broker id.
        id: i64,
        /// The limit.
        limit: usize,
    },
    /// More ids than all names may have together.
    #[error(
        "broker {name} with id {id} is refused: all names together have {limit} ids already, {MEAN_IDS_PER_NAME} for each \
         name that there may be (maxBrokers)"
    )]
    TooManyIdsOfAll {
        /// Broker name.
        name: String,
        /// Broker id.
        id: i64,
        /// The limit.
        limit: usize,
    },
}

/// Result of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// The registration is in force. `master` is the master of a slave, if there is one.
    Accepted {
        /// (address, replication address).
        master: Option<(String, String)>,
    },
    /// Another process with this name and id has a newer state. Nothing was changed.
    Stale,
}

/// What a registration changed apart from topics, for the operator's log and for the brokers to notify.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrationEvents {
    /// Events of the broker, as texts for the log.
    pub events: Vec<String>,
    /// Set if the lowest id of its name changed.
    pub notice: Option<MinIdChange>,
}

/// The lowest broker id of a name changed (Apache `NotifyMinBrokerIdChangeRequestHeader`, request 905).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinIdChange {
    /// Broker name.
    pub name: String,
    /// The new lowest id.
    pub id: i64,
    /// Address of the broker with the new lowest id.
    pub address: String,
    /// Address of the broker that left, if one did.
    pub offline: Option<String>,
    /// Replication address of the broker that joined, if one did.
    pub ha_address: Option<String>,
    /// Addresses of the brokers to notify.
    pub recipients: Vec<String>,
}
