//! Options of a name server: Apache's `namesrv.conf` keys with default, unit and range (Apache `NamesrvConfig`,
//! `NettyServerConfig`).
//!
//! Python keeps the values that concern only its rows (paths, lists that may be queried).

use crate::error::NameServerError;
use pyrmq_remoting::header::read_address_sets;
use pyrmq_remoting::net::{LargeFrames, ServerOptions};
use pyrmq_routing::table::Settings;
use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

pub use pyrmq_remoting::setting::Setting;

/// Registrations alone are this large. One is processed while the next is read: more at once would only take memory,
/// and processor time from routes and heartbeats.
const LARGE: LargeFrames = LargeFrames {
    bytes: 64 * 1024,
    at_once: 2,
};

pyrmq_remoting::options! {
    /// All options of a name server.
    pub struct Options, NameServerError;
    also {}
    /// Address to listen on.
    bind_address: String = "0.0.0.0".to_owned(), "bindAddress", "address", 0..=0;
    /// Port; 0 picks a free one.
    listen_port: i64 = 9876, "listenPort", "port", 0..=65535;
    /// Further ports, each for the clients of one address set, `set=host:port;set=host:port`.
    address_set_listeners: String = String::new(), "addressSetListeners", "address list", 0..=0;
    /// A connection without a byte for this time is closed.
    server_channel_max_idle_time_seconds: i64 = 120, "serverChannelMaxIdleTimeSeconds", "s", 1..=86_400;
    /// Interval between two checks for silent brokers.
    scan_not_active_broker_interval: i64 = 5000, "scanNotActiveBrokerInterval", "ms", 1..=i64::MAX;
    /// Requests for Python processors that may wait at once.
    default_thread_pool_queue_capacity: i64 = 10_000, "defaultThreadPoolQueueCapacity", "requests", 1..=i64::MAX;
    /// Routes carry the order configuration of their topic.
    order_message_enable: bool = false, "orderMessageEnable", "switch", 0..=0, live;
    /// A registering broker gets the order configuration of all topics.
    return_order_topic_config_to_broker: bool = true, "returnOrderTopicConfigToBroker", "switch", 0..=0, live;
    /// A slave acts for a master that is away.
    support_acting_master: bool = false, "supportActingMaster", "switch", 0..=0, live;
    /// Brokers are notified when the lowest id of their name changes.
    notify_min_broker_id_changed: bool = false, "notifyMinBrokerIdChanged", "switch", 0..=0, live;
    /// Topics that a broker's registration lacks are removed from it.
    delete_topic_with_broker_registration: bool = false, "deleteTopicWithBrokerRegistration", "switch", 0..=0, live;
    /// Maximum number of topics of one broker name; more are refused.
    max_topics_per_broker: i64 = 200_000, "maxTopicsPerBroker", "topics", 1..=i64::MAX, live;
    /// Maximum number of topics of all broker names together, counted once for each name that has it; more are refused.
    max_topics: i64 = 4_000_000, "maxTopics", "topics", 1..=i64::MAX, live;
    /// Maximum number of broker names; one more is refused.
    max_brokers: i64 = 10_000, "maxBrokers", "names", 1..=i64::MAX, live;
    /// Route queries are refused for a while after the start.
    need_wait_for_service: bool = false, "needWaitForService", "switch", 0..=0, live;
    /// How long they are refused.
    wait_seconds_for_service: i64 = 45, "waitSecondsForService", "s", 0..=i64::MAX, live;
}

impl Options {
    /// Returns true if a running name server may change the key, or if the key is unknown here.
    pub fn is_live(key: &str) -> bool {
        !Self::KEYS.contains(&key) || Self::LIVE.contains(&key)
    }

    /// Returns an error if a value is out of its range.
    pub fn validate(&self) -> Result<(), NameServerError> {
        self.check_ranges()?;
        read_address_sets(&self.address_set_listeners, true).map_err(|error| self.wrong_listeners(&error))?;
        Ok(())
    }

    /// Returns the address to listen on: the first one of a name.
    pub(crate) fn address(&self) -> Result<SocketAddr, NameServerError> {
        let port = u16::try_from(self.listen_port)
            .map_err(|_| wrong("listenPort", &self.listen_port.to_string(), "0 to 65535"))?;
        let allowed = "an IP address or a name of this machine";
        let mut found = (&*self.bind_address, port)
            .to_socket_addrs()
            .map_err(|cause| wrong("bindAddress", &self.bind_address, &format!("{allowed}: {cause}")))?;
        found
            .next()
            .ok_or_else(|| wrong("bindAddress", &self.bind_address, allowed))
    }

    /// Returns each address set with the address on which its clients ask.
    pub(crate) fn set_listeners(&self) -> Result<Vec<(String, SocketAddr)>, NameServerError> {
        let sets = read_address_sets(&self.address_set_listeners, true);
        let sets = sets.map_err(|error| self.wrong_listeners(&error))?;
        sets.into_iter()
            .map(|one| {
                let mut found = (&*one.host, one.port)
                    .to_socket_addrs()
                    .map_err(|cause| self.wrong_listeners(&format_args!("`{one}`: {cause}")))?;
                let address = found
                    .next()
                    .ok_or_else(|| self.wrong_listeners(&format_args!("`{one}` has no address")))?;
                Ok((one.set, address))
            })
            .collect()
    }

    fn wrong_listeners(&self, cause: &dyn Display) -> NameServerError {
        wrong(
            "addressSetListeners",
            &self.address_set_listeners,
            &format!("set=host:port;set=host:port, with addresses of this machine: {cause}"),
        )
    }

    pub(crate) fn transport(&self) -> ServerOptions {
        let mut options = ServerOptions::default();
        options.connection.idle =
            Duration::from_secs(self.server_channel_max_idle_time_seconds.unsigned_abs());
        options.large_frames = Some(LARGE);
        options
    }

    pub(crate) fn table(&self) -> Settings {
        Settings {
            support_acting_master: self.support_acting_master,
            delete_topic_with_broker_registration: self.delete_topic_with_broker_registration,
            order_message_enable: self.order_message_enable,
            max_topics_per_broker: usize::try_from(self.max_topics_per_broker).ok(),
            max_topics: usize::try_from(self.max_topics).ok(),
            max_brokers: usize::try_from(self.max_brokers).ok(),
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
