//! Messages with everything that a sender may include.

use crate::common::{message, props};
use pyrmq_remoting::message::properties::Properties;
use pyrmq_remoting::message::sys_flag;
use pyrmq_store::NewMessage;
use pyrmq_testkit::Random;

/// A sent message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) topic: String,
    pub(crate) queue: i32,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: String,
    /// Its unique key: no other message has it.
    pub(crate) key: String,
    /// True for a prepared message, which is in no queue.
    pub(crate) is_hidden: bool,
}

impl Sent {
    /// Creates a random message with this number, and a body below this length.
    pub(crate) fn any(
        random: &mut Random,
        (topic, queue): (&str, i32),
        (number, most): (usize, usize),
        has_nul: bool,
    ) -> Self {
        let size = match random.below(10) {
            0 => 0,
            1..5 => random.below(60),
            5..9 => random.below(900),
            _ => random.below(3000),
        };
        // Zero bytes look like what a lost sector leaves.
        let fill = if random.one_in(8) { 0 } else { b'a' };
        let mut key = format!("key{number}");
        let (mut keys, mut tag) = (
            *random.choose(&["", "", "k1", "k2 k3", "k1 k2"]).unwrap(),
            *random.choose(&["", "t", "t", "u", "Łódź"]).unwrap(),
        );
        let longest = if random.one_in(5) { 1200 } else { 30 };
        let mut value = "v".repeat(random.below(longest));
        let mut cuts_end = false;
        if has_nul {
            if random.one_in(3) {
                key.push('\0');
            }
            keys = *random.choose(&[keys, "k\0", "\0\0 k1"]).unwrap();
            tag = *random.choose(&[tag, "t\0", "\0"]).unwrap();
            let longest = *random.choose(&[0, 20, 1800]).unwrap();
            value.push_str(&"\0".repeat(random.below(longest)));
            // Some clients omit the last separator.
            cuts_end = random.one_in(2);
        }
        let mut pairs = vec![("UNIQ_KEY", key.as_str())];
        pairs.extend([("KEYS", keys), ("TAGS", tag), ("user", &value)]);
        pairs.retain(|(_, value)| !value.is_empty());
        let mut properties = props(&pairs);
        if cuts_end {
            properties.pop();
        }
        Self {
            topic: topic.to_owned(),
            queue,
            body: vec![fill; size.min(most)],
            properties,
            key,
            is_hidden: false,
        }
    }

    /// Converts it to the form that the store takes.
    pub(crate) fn message(&self) -> NewMessage<'_> {
        let mut message = message(&self.topic, self.queue, &self.body, &self.properties);
        if self.is_hidden {
            message.sys_flag = sys_flag::TRANSACTION_PREPARED;
        }
        message
    }

    /// A property.
    pub(crate) fn property(&self, name: &str) -> Option<String> {
        Properties::new(&self.properties).get(name).map(ToOwned::to_owned)
    }
}
