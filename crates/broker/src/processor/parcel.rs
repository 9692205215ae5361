//! The header of a send, read in one pass over its fields (Apache `SendMessageRequestHeader`, `...V2`).
//!
//! A send is the request that a broker gets most, so its header is not looked up key by key: V2's one-letter keys
//! select the field directly. Missing required fields are refused as [`WireError::MissingField`].

use pyrmq_remoting::codes::request;
use pyrmq_remoting::{Command, WireError};

/// What a send says about its message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Parcel<'a> {
    /// `a` producerGroup.
    pub(crate) group: &'a str,
    /// `b` topic.
    pub(crate) topic: &'a str,
    /// `c` defaultTopic: the template if the topic has to be made.
    pub(crate) default_topic: &'a str,
    /// `d` defaultTopicQueueNums.
    pub(crate) default_queues: i32,
    /// `e` queueId; negative: the broker chooses.
    pub(crate) queue_id: i32,
    /// `f` sysFlag.
    pub(crate) sys_flag: i32,
    /// `g` bornTimestamp.
    pub(crate) born_ms: i64,
    /// `h` flag: the sender's own.
    pub(crate) flag: i32,
    /// `i` properties in wire form.
    pub(crate) properties: &'a str,
    /// `j` reconsumeTimes.
    pub(crate) reconsume_times: i32,
    /// `k` unitMode.
    pub(crate) unit_mode: bool,
    /// `l` maxReconsumeTimes.
    pub(crate) max_reconsume_times: Option<i32>,
    /// `m` batch.
    pub(crate) batch: bool,
}

impl<'a> Parcel<'a> {
    /// Reads the header that belongs to the request's code.
    pub(crate) fn read(command: &'a Command) -> Result<Self, WireError> {
        let is_long = matches!(command.code, request::SEND_MESSAGE | request::SEND_REPLY_MESSAGE);
        let mut parcel = Self::default();
        let mut seen = 0_u8;
        for (key, value) in command.fields.iter() {
            let letter = if is_long { letter_of(key) } else { only_byte(key) };
            parcel.take(letter, value, &mut seen)?;
        }
        if command.code == request::SEND_BATCH_MESSAGE {
            parcel.batch = true;
        }
        match (0..8).find(|bit| seen & (1 << bit) == 0) {
            None => Ok(parcel),
            Some(bit) => Err(WireError::MissingField(REQUIRED[bit])),
        }
    }

    fn take(&mut self, letter: u8, value: &'a str, seen: &mut u8) -> Result<(), WireError> {
        match letter {
            b'a' => self.group = value,
            b'b' => self.topic = value,
            b'c' => self.default_topic = value,
            b'd' => self.default_queues = number(value, "defaultTopicQueueNums")?,
            b'e' => self.queue_id = number(value, "queueId")?,
            b'f' => self.sys_flag = number(value, "sysFlag")?,
            b'g' => self.born_ms = number(value, "bornTimestamp")?,
            b'h' => self.flag = number(value, "flag")?,
            b'i' => self.properties = value,
            b'j' if !value.is_empty() => self.reconsume_times = number(value, "reconsumeTimes")?,
            b'k' => self.unit_mode = value.eq_ignore_ascii_case("true"),
            b'l' if !value.is_empty() => self.max_reconsume_times = Some(number(value, "maxReconsumeTimes")?),
            b'm' => self.batch = value.eq_ignore_ascii_case("true"),
            _ => {}
        }
        if (b'a'..=b'h').contains(&letter) {
            *seen |= 1 << (letter - b'a');
        }
        Ok(())
    }
}

const REQUIRED: [&str; 8] = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
];

fn only_byte(key: &str) -> u8 {
    match key.as_bytes() {
        [letter] => *letter,
        _ => 0,
    }
}

fn letter_of(key: &str) -> u8 {
    match key {
        "producerGroup" => b'a',
        "topic" => b'b',
        "defaultTopic" => b'c',
        "defaultTopicQueueNums" => b'd',
        "queueId" => b'e',
        "sysFlag" => b'f',
        "bornTimestamp" => b'g',
        "flag" => b'h',
        "properties" => b'i',
        "reconsumeTimes" => b'j',
        "unitMode" => b'k',
        "maxReconsumeTimes" => b'l',
        "batch" => b'm',
        _ => 0,
    }
}

pub(crate) fn number<T: std::str::FromStr>(value: &str, field: &'static str) -> Result<T, WireError> {
    value.parse().map_err(|_| WireError::BadField {
        field,
        expected: "a number",
        value: value.chars().take(64).collect(),
    })
}
