//! Sending messages: requests 10, 310, 320, 324, 325, 370 and their responses.
//!
//! ```text
//! V1 (10, 324)        producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp
//! V2 (310, 320, 325)  a             b     c            d                     e       f       g
//! V1  flag properties reconsumeTimes unitMode maxReconsumeTimes batch bname
//! V2  h    i          j              k        l                 m     n
//! ```

use crate::codes::request;
use crate::error::WireError;
use crate::fields::Fields;
use crate::header::{EncodeHeader, FieldSink, FieldValue, HeadWriter};

crate::header! {
    /// Where the message is stored (Apache `SendMessageResponseHeader`).
    pub struct SendMessageResponseHeader<'a> {
        /// Message id.
        pub msg_id: &'a str => "msgId",
        /// Queue number.
        pub queue_id: i32 => "queueId",
        /// Offset in the queue.
        pub queue_offset: i64 => "queueOffset",
        /// Transaction id.
        pub transaction_id: Option<&'a str> => "transactionId",
        /// Unique id of a batch that the broker keeps as one record.
        pub batch_uniq_id: Option<&'a str> => "batchUniqId",
        /// Handle for recalling a timer message.
        pub recall_handle: Option<&'a str> => "recallHandle",
    }

    /// Recalls a timer message (Apache `RecallMessageRequestHeader`).
    pub struct RecallMessageRequestHeader<'a> {
        /// Producer group.
        pub producer_group: Option<&'a str> => "producerGroup",
        /// Topic name.
        pub topic: &'a str => "topic" or "",
        /// Handle of the timer message.
        pub recall_handle: &'a str => "recallHandle" or "",
    }

    /// Id of the recalling message (Apache `RecallMessageResponseHeader`).
    pub struct RecallMessageResponseHeader<'a> {
        /// Message id.
        pub msg_id: &'a str => "msgId",
    }
}

/// A message's header in either form (Apache `SendMessageRequestHeader`, `SendMessageRequestHeaderV2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendMessageRequestHeader<'a> {
    /// Producer group.
    pub producer_group: &'a str,
    /// Topic name.
    pub topic: &'a str,
    /// Topic whose settings a created topic gets, `TBW102`.
    pub default_topic: &'a str,
    /// Queues that a created topic should get.
    pub default_topic_queue_nums: i32,
    /// Queue number; below 0 lets the broker choose.
    pub queue_id: i32,
    /// System flag bits.
    pub sys_flag: i32,
    /// When the client created the message, ms since the epoch.
    pub born_timestamp: i64,
    /// The user's own flag.
    pub flag: i32,
    /// Properties, `key 0x01 value 0x02` repeated.
    pub properties: Option<&'a str>,
    /// How often consumers sent the message back.
    pub reconsume_times: Option<i32>,
    /// Unit mode.
    pub unit_mode: bool,
    /// Maximum number of deliveries before the dead-letter topic.
    pub max_reconsume_times: Option<i32>,
    /// Whether the body is a batch.
    pub batch: bool,
    /// Broker name, as 5.x clients send it.
    pub broker_name: Option<&'a str>,
}

/// Field names of one form, in the order of the letters.
type Keys = [&'static str; 14];

const V1: Keys = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
    "bname",
];
const V2: Keys = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
];

impl<'a> SendMessageRequestHeader<'a> {
    /// Reads the form that matches a request code.
    pub fn decode(code: i32, fields: &'a Fields) -> Result<Self, WireError> {
        match code {
            request::SEND_MESSAGE | request::SEND_REPLY_MESSAGE => Self::decode_v1(fields),
            _ => Self::decode_v2(fields),
        }
    }

    /// Reads the form with full names (requests 10 and 324).
    pub fn decode_v1(fields: &'a Fields) -> Result<Self, WireError> {
        let mut texts = [None; 14];
        for (key, value) in fields.iter() {
            let known = V1.iter().zip(&mut texts).find(|(name, _)| **name == key);
            if let Some((_, text)) = known {
                *text = Some(value);
            }
        }
        Self::from_texts(texts, &V1)
    }

    /// Reads the form with letters (requests 310, 320 and 325) in one pass.
    pub fn decode_v2(fields: &'a Fields) -> Result<Self, WireError> {
        let mut texts = [None; 14];
        for (letter, value) in fields.letters() {
            if let Some(text) = texts.get_mut(usize::from(letter.wrapping_sub(b'a'))) {
                *text = Some(value);
            }
        }
        Self::from_texts(texts, &V2)
    }

    #[expect(clippy::many_single_char_names, reason = "the letters are the wire's own")]
    fn from_texts(texts: [Option<&'a str>; 14], keys: &Keys) -> Result<Self, WireError> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = texts;
        let [_, kb, _, kd, ke, kf, kg, kh, ki, kj, kk, kl, km, kn] = *keys;
        Ok(Self {
            producer_group: a.unwrap_or_default(),
            topic: FieldValue::read(b, kb)?,
            default_topic: c.unwrap_or_default(),
            // If it is missing, a created topic gets as many queues as its template.
            default_topic_queue_nums: FieldValue::read(d, kd).unwrap_or(i32::MAX),
            queue_id: FieldValue::read(e, ke)?,
            sys_flag: FieldValue::read(f, kf)?,
            born_timestamp: FieldValue::read(g, kg)?,
            flag: FieldValue::read(h, kh)?,
            properties: FieldValue::read(i, ki)?,
            reconsume_times: FieldValue::read(j, kj)?,
            unit_mode: FieldValue::read(k, kk)?,
            max_reconsume_times: FieldValue::read(l, kl)?,
            batch: FieldValue::read(m, km)?,
            broker_name: FieldValue::read(n, kn)?,
        })
    }

    /// Appends the form with full names (requests 10 and 324).
    pub fn encode_v1(&self, fields: &mut Fields) {
        self.write(&V1, fields);
    }

    /// Appends the form with letters (requests 310, 320 and 325).
    pub fn encode_v2(&self, fields: &mut Fields) {
        self.write(&V2, fields);
    }

    /// Writes the form with letters straight into a frame's head, with the same result as [`Self::encode_v2`].
    pub fn write_to(&self, head: &mut HeadWriter<'_>) {
        self.write(&V2, head);
    }

    /// Writes the first part of [`Self::write_to`], which a group's messages for a topic share: fields `a` to `d`, in
    /// this order.
    pub fn write_shared(&self, sink: &mut impl FieldSink) {
        self.shared(&V2, sink);
    }

    /// Writes the second part of [`Self::write_to`], which differs from message to message: fields `e` to `n`, in this
    /// order.
    #[inline]
    pub fn write_own(&self, sink: &mut impl FieldSink) {
        self.own(&V2, sink);
    }

    fn write(&self, keys: &Keys, sink: &mut impl FieldSink) {
        self.shared(keys, sink);
        self.own(keys, sink);
    }

    #[inline]
    fn shared(&self, keys: &Keys, sink: &mut impl FieldSink) {
        let [a, b, c, d, ..] = *keys;
        self.producer_group.write(a, sink);
        self.topic.write(b, sink);
        self.default_topic.write(c, sink);
        self.default_topic_queue_nums.write(d, sink);
    }

    #[inline]
    #[expect(clippy::many_single_char_names, reason = "the letters are the wire's own")]
    fn own(&self, keys: &Keys, sink: &mut impl FieldSink) {
        let [_, _, _, _, e, f, g, h, i, j, k, l, m, n] = *keys;
        self.queue_id.write(e, sink);
        self.sys_flag.write(f, sink);
        self.born_timestamp.write(g, sink);
        self.flag.write(h, sink);
        self.properties.write(i, sink);
        self.reconsume_times.write(j, sink);
        self.unit_mode.write(k, sink);
        self.max_reconsume_times.write(l, sink);
        self.batch.write(m, sink);
        self.broker_name.write(n, sink);
    }
}

/// The form with letters, which every current client sends.
impl EncodeHeader for SendMessageRequestHeader<'_> {
    fn encode(&self, fields: &mut Fields) {
        fields.reserve(14, 256_usize.saturating_add(self.properties.map_or(0, str::len)));
        self.encode_v2(fields);
    }
}
