//! The receipt handle of a popped message: where it came from and until when it is hidden (Apache `ExtraInfoUtil`,
//! `MessageConst.PROPERTY_POP_CK`).
//!
//! ```text
//! 40 1700000000000 60000 3 0 broker-a 5 42
//! |  |             |     | | |        | offset of the message in its queue; clients before 5.0 leave it out
//! |  |             |     | | |        queue
//! |  |             |     | | broker
//! |  |             |     | 0 topic, 1 retry topic, 2 retry topic with enableRetryTopicV2
//! |  |             |     revive queue; 999: an ordered pop, which has no check point
//! |  |             invisible time, ms
//! |  pop time, ms since the epoch
//! offset at which the pop began to read the queue
//! ```
//! Broker and client build it from the answer to a pop; acknowledgements and changes of the invisible time carry it.

use crate::error::WireError;
use crate::names::{self, POP_ORDER_REVIVE_QUEUE};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Maximum length of an unreadable handle that errors show.
const SHOWN: usize = 120;

/// The kind of topic that a message was popped from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PopSource {
    /// The topic itself.
    #[default]
    Topic,
    /// `%RETRY%group_topic`.
    Retry,
    /// `%RETRY%group+topic`.
    RetryV2,
}

impl PopSource {
    /// The kind of this topic.
    pub fn of(topic: &str) -> Self {
        if !names::is_retry(topic) {
            Self::Topic
        } else if names::is_pop_retry_v2(topic) {
            Self::RetryV2
        } else {
            Self::Retry
        }
    }

    /// The digit in responses and handles.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "0",
            Self::Retry => "1",
            Self::RetryV2 => "2",
        }
    }

    /// The topic that a message came from, given the topic and group of the pop.
    pub fn topic<'a>(self, topic: &'a str, group: &str) -> Cow<'a, str> {
        match self {
            Self::Topic => Cow::Borrowed(topic),
            Self::Retry => Cow::Owned(names::pop_retry_topic(topic, group)),
            Self::RetryV2 => Cow::Owned(names::pop_retry_topic_v2(topic, group)),
        }
    }
}

impl FromStr for PopSource {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        match text {
            "0" => Ok(Self::Topic),
            "1" => Ok(Self::Retry),
            "2" => Ok(Self::RetryV2),
            _ => Err(WireError::BadField {
                field: "retry",
                expected: "0, 1 or 2",
                value: text.chars().take(SHOWN).collect(),
            }),
        }
    }
}

/// A parsed receipt handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptHandle<'a> {
    /// Offset at which the pop began to read the queue; it identifies the check point.
    pub start_offset: i64,
    /// When the message was handed out, ms since the epoch.
    pub pop_time: i64,
    /// How long the message is hidden from then on, ms.
    pub invisible_time: i64,
    /// Queue of the revive topic.
    pub revive_queue_id: i32,
    /// Where the message came from.
    pub source: PopSource,
    /// Broker that handed it out.
    pub broker_name: &'a str,
    /// Queue of the message.
    pub queue_id: i32,
    /// Offset of the message in its queue.
    pub offset: Option<i64>,
}

impl<'a> ReceiptHandle<'a> {
    /// Parses a handle. An error means that the text is not a handle.
    pub fn parse(text: &'a str) -> Result<Self, WireError> {
        let bad = || WireError::BadField {
            field: "extraInfo",
            expected: "a receipt handle of 7 or 8 words, as the answer to a pop gives it",
            value: text.chars().take(SHOWN).collect(),
        };
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or_else(bad);
        let number = |word: &str| word.parse::<i64>().map_err(|_| bad());
        let small = |word: &str| word.parse::<i32>().map_err(|_| bad());
        let handle = Self {
            start_offset: number(next()?)?,
            pop_time: number(next()?)?,
            invisible_time: number(next()?)?,
            revive_queue_id: small(next()?)?,
            source: next()?.parse().map_err(|_| bad())?,
            broker_name: next()?,
            queue_id: small(next()?)?,
            offset: words.next().map(number).transpose()?,
        };
        if words.next().is_some() || handle.broker_name.is_empty() {
            return Err(bad());
        }
        Ok(handle)
    }

    /// When the message becomes visible again unless it is acknowledged, ms since the epoch.
    pub fn visible_at(&self) -> i64 {
        self.pop_time.saturating_add(self.invisible_time)
    }

    /// Whether the pop was ordered.
    pub fn is_ordered(&self) -> bool {
        self.revive_queue_id == POP_ORDER_REVIVE_QUEUE
    }
}

impl fmt::Display for ReceiptHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {} {} {} {}",
            self.start_offset,
            self.pop_time,
            self.invisible_time,
            self.revive_queue_id,
            self.source.as_str(),
            self.broker_name,
            self.queue_id
        )?;
        match self.offset {
            Some(offset) => write!(f, " {offset}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        for text in [
            "40 1700000000000 60000 3 0 broker-a 5 42",
            "0 1 2 999 2 b 0",
            "0 1 2 7 1 b 0 0",
        ] {
            let handle = ReceiptHandle::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(handle.to_string(), text);
        }
        let handle = ReceiptHandle::parse("0 5 9223372036854775807 999 0 b 0");
        assert!(handle.is_ok_and(|handle| handle.is_ordered() && handle.visible_at() == i64::MAX));
    }

    #[test]
    fn what_is_no_handle_is_refused_with_its_text() {
        for text in [
            "",
            "1",
            "1 2 3 4 0 b",
            "1 2 3 4 0 b x",
            "1 2 3 4 3 b 5",
            "1 2 3 4 0  5",
            "1 2 3 4 0 b 5 6 7",
            "1 2 3 4 0 b 5 ",
            "99999999999999999999 2 3 4 0 b 5",
        ] {
            let error = ReceiptHandle::parse(text).expect_err(text);
            assert!(error.to_string().contains("receipt handle"), "{error}");
        }
    }

    #[test]
    fn a_source_names_its_topic() {
        for (topic, source) in [
            ("t", PopSource::Topic),
            ("%RETRY%g_t", PopSource::Retry),
            ("%RETRY%g+t", PopSource::RetryV2),
        ] {
            assert_eq!(PopSource::of(topic), source);
            assert_eq!(source.topic("t", "g"), topic);
            assert_eq!(source.as_str().parse(), Ok(source));
        }
    }
}
