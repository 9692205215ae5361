//! Which limit on messages in flight was reached, and which option raises it.

use std::sync::Arc;
use std::time::Duration;

/// The window of a broker is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerFull {
    /// Name of the broker.
    pub name: Arc<str>,
    /// Messages in flight to the broker.
    pub messages: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// How many messages may be in flight.
    pub window: usize,
    /// How many bytes may be in flight.
    pub byte_limit: usize,
}

/// The in-flight limit is reached: how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowFull {
    /// Messages on their way.
    pub messages: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// How many messages may be in flight now: fewer than the limit while a broker is overloaded.
    pub window: usize,
    /// The limit of messages.
    pub message_limit: usize,
    /// The limit of bytes.
    pub byte_limit: usize,
    /// Set if there was capacity, but not in the window of the only broker that the message could go to.
    pub broker: Option<BrokerFull>,
    /// How long there was no room.
    pub waited: Duration,
}

impl WindowFull {
    pub(super) fn text(&self) -> String {
        let Self {
            messages,
            bytes,
            window,
            message_limit,
            byte_limit,
            broker,
            waited,
        } = self;
        let (text, option) = if let Some(broker) = broker {
            let BrokerFull {
                name,
                messages,
                bytes,
                window,
                byte_limit,
            } = broker;
            let text = format!(
                "{messages} messages of {bytes} bytes for broker `{name}` are on their way, the limit of one broker is {window} messages and {byte_limit} bytes now"
            );
            let option = if messages < window {
                "max_in_flight_bytes"
            } else {
                "max_in_flight"
            };
            (text, option)
        } else if messages < window {
            let text = format!("messages of {bytes} bytes are on their way, the limit is {byte_limit} bytes");
            (text, "max_in_flight_bytes")
        } else if window < message_limit {
            let text = format!(
                "{messages} messages are on their way, the limit is {window} while a broker is busy (else {message_limit})"
            );
            (text, "max_in_flight")
        } else {
            let text = format!("{messages} messages are on their way, the limit is {message_limit}");
            (text, "max_in_flight")
        };
        if waited.is_zero() {
            text + &format!(": wait for results or raise `{option}`")
        } else {
            text + &format!(
                ", and no room came in {} ms, the time of the send: wait for results before you send more, or raise `send_timeout`, this send's `timeout` or `{option}`",
                waited.as_millis()
            )
        }
    }
}
