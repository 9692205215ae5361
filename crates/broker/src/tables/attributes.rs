//! Attributes of topics and groups: which exist, and how a request changes them (Apache `TopicAttributes`,
//! `SubscriptionGroupAttributes`, `AttributeParser`, `AttributeUtil`).
//!
//! A request lists changes: `+key` with a value sets an attribute, `-key` deletes it.

use crate::error::Refusal;
use pyrmq_remoting::codes::response;
use std::collections::{BTreeMap, BTreeSet};

/// Values by name.
pub(crate) type Attributes = BTreeMap<String, String>;

/// An attribute that Apache 5.5 knows.
#[derive(Debug)]
pub(crate) struct Attribute {
    name: &'static str,
    /// Whether it can be changed after its topic or group was created.
    changeable: bool,
    values: Values,
}

/// The values that an attribute may have.
#[derive(Debug)]
enum Values {
    /// One of the first list. Values of the second need code that is not built; they are refused, since a topic that
    /// silently behaves differently loses messages.
    Built(&'static [&'static str], &'static [&'static str]),
    /// A whole number in a range.
    Number(i64, i64),
    /// None: the attribute belongs to lite topics. A store that Apache's broker has written may have it; it has no
    /// effect.
    OfLiteTopics,
}

const fn attribute(name: &'static str, changeable: bool, values: Values) -> Attribute {
    Attribute {
        name,
        changeable,
        values,
    }
}

/// Attributes of topics.
pub(crate) const OF_TOPICS: &[Attribute] = &[
    attribute("queue.type", false, Values::Built(&["SimpleCQ"], &["BatchCQ"])),
    attribute(
        "cleanup.policy",
        false,
        Values::Built(&["DELETE"], &["COMPACTION"]),
    ),
    attribute(
        "message.type",
        true,
        Values::Built(
            &[
                "UNSPECIFIED",
                "NORMAL",
                "FIFO",
                "DELAY",
                "TRANSACTION",
                "PRIORITY",
                "MIXED",
            ],
            &["LITE"],
        ),
    ),
    attribute("reserve.time", true, Values::Number(-1, i64::MAX)),
    attribute("lite.topic.expiration", true, Values::OfLiteTopics),
];

/// Attributes of consumer groups.
pub(crate) const OF_GROUPS: &[Attribute] = &[
    attribute("priority.factor", true, Values::Number(0, 100)),
    attribute("lite.bind.topic", true, Values::OfLiteTopics),
    attribute("lite.sub.model", true, Values::OfLiteTopics),
    attribute("lite.sub.reset.offset.exclusive", true, Values::OfLiteTopics),
    attribute("lite.sub.reset.offset.unsubscribe", true, Values::OfLiteTopics),
    attribute("lite.sub.client.quota", true, Values::OfLiteTopics),
    attribute("lite.sub.client.max.event.cnt", true, Values::OfLiteTopics),
    attribute("lite.sub.wildcard", true, Values::OfLiteTopics),
];

impl Attribute {
    fn verify(&self, value: &str) -> Result<(), Refusal> {
        let name = self.name;
        let refuse = |words: String| Err(Refusal::internal(format!("{words}; {name} is `{value}`")));
        let not_built = |words: String| Err(Refusal::new(response::INVALID_PARAMETER, words));
        match &self.values {
            Values::Built(_, unbuilt) if unbuilt.contains(&value) => {
                not_built(format!("topics with {name}={value} are not built yet"))
            }
            Values::OfLiteTopics => not_built(format!("lite topics are not built yet; {name} is `{value}`")),
            Values::Built(allowed, _) if !allowed.contains(&value) => {
                refuse(format!("value is not in set: [{}]", allowed.join(", ")))
            }
            Values::Number(min, max) => match value.parse::<i64>() {
                Err(_) => refuse(format!("For input string: \"{value}\", it must be a number")),
                Ok(number) if !(*min..=*max).contains(&number) => {
                    refuse(format!("value is not in range({min}, {max})"))
                }
                Ok(_) => Ok(()),
            },
            Values::Built(..) => Ok(()),
        }
    }
}

/// Parses `+key=value,-key`, as a request for one topic has it.
pub(crate) fn parse(text: &str) -> Result<Attributes, Refusal> {
    let mut changes = Attributes::new();
    for change in text.split(',').filter(|change| !change.is_empty()) {
        let (key, value) = match change.split_once('=') {
            Some((key, value)) if key.contains('+') => (key, value),
            Some((key, _)) => return Err(wrong("add/alter attribute format is wrong", key)),
            None if change.contains('-') => (change, ""),
            None => return Err(wrong("delete attribute format is wrong", change)),
        };
        if changes.insert(key.trim().to_owned(), value.to_owned()).is_some() {
            return Err(wrong("key duplication", key));
        }
    }
    Ok(changes)
}

fn wrong(words: &str, key: &str) -> Refusal {
    Refusal::internal(format!("{words}: {key}; attributes are written +key=value,-key"))
}

/// The attributes after a change. `current` is `None` for a topic or group that is being created.
pub(crate) fn altered(
    known: &'static [Attribute],
    current: Option<&Attributes>,
    changes: &Attributes,
) -> Result<Attributes, Refusal> {
    let mut altered = current.cloned().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (change, value) in changes {
        let (sign, name) = change.split_at_checked(1).unwrap_or_default();
        if name.is_empty() || name.contains(['+', '-']) {
            return Err(wrong("kv string format wrong", change));
        }
        if !seen.insert(name) {
            return Err(wrong("alter duplication key. key", name));
        }
        let is_there = altered.contains_key(name);
        match (sign, current) {
            ("+", _) => {}
            (_, None) => {
                let words = "only add attribute is supported while creating topic. key";
                return Err(wrong(words, name));
            }
            ("-", Some(_)) if is_there => {}
            ("-", Some(_)) => return Err(wrong("attempt to delete a nonexistent key", name)),
            _ => return Err(wrong("wrong format key", name)),
        }
        let Some(attribute) = known.iter().find(|attribute| attribute.name == name) else {
            let names: Vec<&str> = known.iter().map(|attribute| attribute.name).collect();
            let words = format!("unsupported key: {name}; known are {}", names.join(", "));
            return Err(Refusal::internal(words));
        };
        if current.is_some() && !attribute.changeable {
            return Err(wrong("attempt to update an unchangeable attribute. key", name));
        }
        if sign == "-" {
            altered.remove(name);
        } else {
            attribute.verify(value)?;
            altered.insert(name.to_owned(), value.clone());
        }
    }
    Ok(altered)
}
