//! The settings of a consumer by POP.

use crate::consumer::options::Start;
use crate::error::ClientError;
use crate::session::options::ClientOptions;

pub use crate::consumer::options::{MAX_INVISIBLE, MIN_INVISIBLE};

/// The settings of a [`SimpleConsumer`](super::simple::SimpleConsumer).
#[derive(Debug, Clone)]
pub struct SimpleOptions {
    /// What every client has.
    pub client: ClientOptions,
    /// The messages of a queue are handed out in order: the next ones only when the last are acknowledged, or their
    /// invisible time is over. Apache `order` of a pop, `consumeMessageOrderly` of a group.
    pub is_ordered: bool,
    /// Where the group begins in a queue that it has never read. Brokers support only first and last (Apache
    /// `ConsumeInitMode`).
    pub start: Start,
    /// Deliveries after the first before a message is a dead letter. `None`: the group's setting on the broker, 16
    /// where it cannot be read (Apache `retryMaxTimes`).
    pub max_tries: Option<i32>,
}

impl SimpleOptions {
    /// Defaults for these name servers and this group.
    pub fn new(name_servers: Vec<String>, group: impl Into<String>) -> Self {
        Self {
            client: ClientOptions::new(name_servers, group),
            is_ordered: false,
            start: Start::First,
            max_tries: None,
        }
    }

    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ClientError> {
        self.client.validate()?;
        if matches!(self.start, Start::Time(_)) {
            return Err(ClientError::Option {
                option: "start",
                value: "a time".to_owned(),
                range: "`first` or `last`: brokers know no other start of a group that consumes by POP",
            });
        }
        Ok(())
    }

    /// Apache `ConsumeInitMode`.
    pub(crate) fn init_mode(&self) -> i32 {
        i32::from(self.start == Start::Last)
    }
}
