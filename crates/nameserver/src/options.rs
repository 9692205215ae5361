//! What a name server can be told: Apache's `namesrv.conf` keys with default, unit and range (Apache `NamesrvConfig`,
//! `NettyServerConfig`).
//!
//! Values that concern only the Python rows (paths, lists that may be asked for) are kept by Python and not here.

use crate::error::NameServerError;
use pyrmq_remoting::net::ServerOptions;
use pyrmq_routing::table::Settings;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// One key as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Apache's key.
    pub key: &'static str,
    /// The value in force.
    pub value: String,
    /// What holds when nothing is said.
    pub default: String,
    /// What the number counts, or the kind of text.
    pub unit: &'static str,
}

trait Value: Sized {
    fn read(text: &str) -> Option<Self>;
}

impl Value for i64 {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Value for bool {
    fn read(text: &str) -> Option<Self> {
        match text {
            _ if text.eq_ignore_ascii_case("true") => Some(true),
            _ if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        }
    }
}

impl Value for String {
    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

macro_rules! options {
    ($($(#[$meta:meta])* $field:ident : $type:ty = $default:expr, $key:literal, $unit:literal, $range:literal, $live:literal;)*) => {
        /// Everything that a name server can be told.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Options {
            $($(#[$meta])* #[doc = concat!("\n\nKey `", $key, "`, ", $unit, ": ", $range, ".")] pub $field: $type,)*
        }

        impl Default for Options {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Options {
            /// Every key, in the order of the table.
            pub const KEYS: &'static [&'static str] = &[$($key,)*];

            /// Sets a key. `Ok(false)`: not one of these, so it concerns Python or nobody.
            pub fn set(&mut self, key: &str, value: &str) -> Result<bool, NameServerError> {
                match key {
                    $($key => {
                        self.$field = Value::read(value.trim()).ok_or_else(|| wrong($key, value, $range))?;
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            /// Every key with what holds.
            pub fn settings(&self) -> Vec<Setting> {
                let defaults = Self::default();
                vec![$(Setting {
                    key: $key,
                    value: self.$field.to_string(),
                    default: defaults.$field.to_string(),
                    unit: $unit,
                },)*]
            }

            /// True when a running name server may change the key.
            pub fn is_live(key: &str) -> bool {
                match key {
                    $($key => $live,)*
                    _ => true,
                }
            }
        }
    };
}

options! {
    /// Address to listen on.
    bind_address: String = "0.0.0.0".to_owned(), "bindAddress", "address", "an IP address of this machine", false;
    /// Port; 0 picks a free one.
    listen_port: i64 = 9876, "listenPort", "port", "0 to 65535", false;
    /// A connection without a byte for so long is closed.
    server_channel_max_idle_time_seconds: i64 = 120, "serverChannelMaxIdleTimeSeconds", "s", "1 to 86400", false;
    /// Time between two looks for silent brokers.
    scan_not_active_broker_interval: i64 = 5000, "scanNotActiveBrokerInterval", "ms", "1 or more", false;
    /// Requests for Python processors that may wait at once.
    default_thread_pool_queue_capacity: i64 = 10_000, "defaultThreadPoolQueueCapacity", "requests", "1 or more", false;
    /// Routes carry the order configuration of their topic.
    order_message_enable: bool = false, "orderMessageEnable", "switch", "true or false", true;
    /// A registering broker gets the order configuration of all topics.
    return_order_topic_config_to_broker: bool = true, "returnOrderTopicConfigToBroker", "switch", "true or false", true;
    /// A slave stands in for a master that is away.
    support_acting_master: bool = false, "supportActingMaster", "switch", "true or false", true;
    /// Brokers are told when the lowest id of their name changes.
    notify_min_broker_id_changed: bool = false, "notifyMinBrokerIdChanged", "switch", "true or false", true;
    /// Topics that a broker's registration lacks are taken from it.
    delete_topic_with_broker_registration: bool = false, "deleteTopicWithBrokerRegistration", "switch", "true or false", true;
    /// Topics that one broker name may have; more are refused.
    max_topics_per_broker: i64 = 200_000, "maxTopicsPerBroker", "topics", "1 or more", true;
    /// Route queries are refused for a while after the start.
    need_wait_for_service: bool = false, "needWaitForService", "switch", "true or false", true;
    /// How long they are refused.
    wait_seconds_for_service: i64 = 45, "waitSecondsForService", "s", "0 or more", true;
}

impl Options {
    /// Refuses values out of their range.
    pub fn validate(&self) -> Result<(), NameServerError> {
        self.address()?;
        let ranges = [
            (
                "serverChannelMaxIdleTimeSeconds",
                self.server_channel_max_idle_time_seconds,
                1,
                86_400,
            ),
            (
                "scanNotActiveBrokerInterval",
                self.scan_not_active_broker_interval,
                1,
                i64::MAX,
            ),
            (
                "defaultThreadPoolQueueCapacity",
                self.default_thread_pool_queue_capacity,
                1,
                i64::MAX,
            ),
            ("maxTopicsPerBroker", self.max_topics_per_broker, 1, i64::MAX),
            (
                "waitSecondsForService",
                self.wait_seconds_for_service,
                0,
                i64::MAX,
            ),
        ];
        for (key, value, low, high) in ranges {
            if value < low || value > high {
                let range = if high == i64::MAX {
                    format!("{low} or more")
                } else {
                    format!("{low} to {high}")
                };
                return Err(wrong(key, &value.to_string(), &range));
            }
        }
        Ok(())
    }

    /// Where to listen.
    pub(crate) fn address(&self) -> Result<SocketAddr, NameServerError> {
        let ip: IpAddr = self
            .bind_address
            .parse()
            .map_err(|_| wrong("bindAddress", &self.bind_address, "an IP address of this machine"))?;
        let port = u16::try_from(self.listen_port)
            .map_err(|_| wrong("listenPort", &self.listen_port.to_string(), "0 to 65535"))?;
        Ok(SocketAddr::new(ip, port))
    }

    pub(crate) fn transport(&self) -> ServerOptions {
        let mut options = ServerOptions::default();
        options.connection.idle =
            Duration::from_secs(self.server_channel_max_idle_time_seconds.unsigned_abs());
        options
    }

    pub(crate) fn table(&self) -> Settings {
        Settings {
            support_acting_master: self.support_acting_master,
            delete_topic_with_broker_registration: self.delete_topic_with_broker_registration,
            order_message_enable: self.order_message_enable,
            max_topics_per_broker: usize::try_from(self.max_topics_per_broker).ok(),
        }
    }
}

fn wrong(key: &'static str, value: &str, range: &str) -> NameServerError {
    NameServerError::Option {
        key,
        value: value.to_owned(),
        range: range.to_owned(),
    }
}
