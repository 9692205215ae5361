//! The properties of a message to be stored: one pass for what the broker needs, one copy with what it adds.
//!
//! ```text
//! as sent    KEYS 0x01 order-42 0x02 UNIQ_KEY 0x01 0A00.. 0x02
//! as stored  the same bytes, then MSG_REGION, TRACE_ON and CLUSTER; UNIQ_KEY too when the sender left it out
//! ```
//! Apache parses them into a map and writes the map back in hash order (`SendMessageProcessor`). Here the bytes keep
//! the sender's order, unless a key must be removed, occurs twice, or some text is not a pair. The stored pairs are the
//! same as Apache's. A later pair hides an earlier one, as in a map.

pub(crate) use pyrmq_remoting::message::properties::names;
use std::collections::{HashMap, HashSet};

/// Between key and value (Apache `MessageDecoder.NAME_VALUE_SEPARATOR`).
pub(crate) const NAME_END: char = '\u{1}';
/// After each pair (Apache `MessageDecoder.PROPERTY_SEPARATOR`).
pub(crate) const PAIR_END: char = '\u{2}';

/// What the broker needs to know of a message's properties.
#[expect(clippy::struct_excessive_bools, reason = "one flag for each property")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ParsedProperties<'a> {
    /// `UNIQ_KEY`.
    pub(crate) unique_key: Option<&'a str>,
    /// `KEYS`, separated by spaces.
    pub(crate) keys: Option<&'a str>,
    /// `TAGS`.
    pub(crate) tags: Option<&'a str>,
    /// `DELAY`, the delay level.
    pub(crate) delay_level: i32,
    /// `DELAY` is not a number.
    pub(crate) is_bad_delay: bool,
    /// `WAIT` is `false`: the sender does not wait for the disk.
    pub(crate) no_wait: bool,
    /// `TRAN_MSG` is `true`.
    pub(crate) is_transaction: bool,
    /// Some key is one of the timer's.
    pub(crate) is_timer: bool,
    /// `INNER_NUM`: claims to be an inner batch.
    pub(crate) is_inner_batch: bool,
    /// `MSG_TYPE` is `reply`.
    pub(crate) is_reply: bool,
    /// The text cannot be copied as it is: it contains a key that the broker writes itself or must not store, a key
    /// that occurs twice, or text that is not a pair.
    pub(crate) needs_rewrite: bool,
}

/// The pairs in the encoded text. Text that is not a pair is skipped, as Apache does.
pub(crate) fn pairs(properties: &str) -> impl Iterator<Item = (&str, &str)> {
    properties
        .split(PAIR_END)
        .filter_map(|pair| pair.split_once(NAME_END))
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
}

/// The value of one property.
pub(crate) fn find<'a>(properties: &'a str, name: &str) -> Option<&'a str> {
    pairs(properties)
        .filter(|(key, _)| *key == name)
        .last()
        .map(|(_, value)| value)
}

/// Parses the encoded text in one pass.
pub(crate) fn parse(properties: &str) -> ParsedProperties<'_> {
    let mut parsed = ParsedProperties::default();
    let (mut names, mut size) = (PropertyNames::default(), 0);
    for (name, value) in pairs(properties) {
        size += name.len() + value.len() + 2;
        parsed.needs_rewrite |= names.is_known(name);
        match name {
            names::UNIQ_KEY => parsed.unique_key = Some(value),
            names::KEYS => parsed.keys = Some(value),
            names::TAGS => parsed.tags = Some(value),
            names::DELAY => {
                let level = value.trim().parse();
                parsed.is_bad_delay = level.is_err();
                parsed.delay_level = level.unwrap_or(0);
            }
            names::WAIT => parsed.no_wait = value.eq_ignore_ascii_case("false"),
            names::TRAN_MSG => parsed.is_transaction = value.eq_ignore_ascii_case("true"),
            name if is_timer(name) => parsed.is_timer = true,
            names::INNER_NUM => parsed.is_inner_batch = true,
            names::MSG_TYPE => parsed.is_reply = value == "reply",
            _ => {}
        }
        parsed.needs_rewrite |= is_brokers(name);
    }
    // The last separator may be missing.
    parsed.needs_rewrite |= size != properties.len() && size != properties.len() + 1;
    parsed
}

/// The names seen so far; most messages have few.
#[derive(Default)]
struct PropertyNames<'a> {
    few: [&'a str; FEW],
    count: usize,
    many: HashSet<&'a str>,
}

const FEW: usize = 12;

impl<'a> PropertyNames<'a> {
    fn is_known(&mut self, name: &'a str) -> bool {
        let few = self.few.get(..self.count.min(FEW)).unwrap_or_default();
        if few.contains(&name) {
            return true;
        }
        let Some(slot) = self.few.get_mut(self.count) else {
            return !self.many.insert(name);
        };
        *slot = name;
        self.count += 1;
        false
    }
}

/// Whether the broker writes this key itself (the first three) or never stores it.
fn is_brokers(name: &str) -> bool {
    matches!(
        name,
        names::MSG_REGION | names::TRACE_ON | names::CLUSTER | names::POP_CK
    )
}

/// Copies the pairs, except those that `drop` names, into a buffer with capacity for `extra` more bytes. The result is
/// empty or ends with a separator.
pub(crate) fn copy(properties: &str, extra: usize, drop: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(properties.len() + 1 + extra);
    for (name, value) in pairs(properties) {
        if !drop(name) {
            append(&mut out, name, value);
        }
    }
    out
}

/// Like `copy`, but each name occurs once, with its last value.
fn copy_once(properties: &str, extra: usize, drop: impl Fn(&str) -> bool) -> String {
    let last: HashMap<&str, usize> = pairs(properties)
        .enumerate()
        .map(|(at, (name, _))| (name, at))
        .collect();
    let mut out = String::with_capacity(properties.len() + 1 + extra);
    for (at, (name, value)) in pairs(properties).enumerate() {
        if last.get(name) == Some(&at) && !drop(name) {
            append(&mut out, name, value);
        }
    }
    out
}

/// Copies the text for storing, unchanged where possible.
pub(crate) fn copy_for_store(
    properties: &str,
    parsed: &ParsedProperties<'_>,
    extra: usize,
    drop_timers: bool,
) -> String {
    if parsed.needs_rewrite || (drop_timers && parsed.is_timer) {
        return copy_once(properties, extra, |name| {
            is_brokers(name) || (drop_timers && is_timer(name))
        });
    }
    let mut out = String::with_capacity(properties.len() + 1 + extra);
    out.push_str(properties);
    if !out.is_empty() && !out.ends_with(PAIR_END) {
        out.push(PAIR_END);
    }
    out
}

/// Whether a key is one of the timer's, which a delay level overrides (Apache `HookUtils.checkIfTimerMessage`).
pub(crate) fn is_timer(name: &str) -> bool {
    matches!(
        name,
        names::TIMER_DELAY_SEC | names::TIMER_DELAY_MS | names::TIMER_DELIVER_MS
    )
}

/// Appends one pair.
pub(crate) fn append(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.push(NAME_END);
    out.push_str(value);
    out.push(PAIR_END);
}

/// The properties that the broker adds to every message (Apache `AbstractSendMessageProcessor.buildMsgContext`).
pub(crate) fn brokers_own(region: &str, trace_on: bool, cluster: &str) -> String {
    let mut out = String::new();
    append(&mut out, names::MSG_REGION, region);
    append(&mut out, names::TRACE_ON, if trace_on { "true" } else { "false" });
    append(&mut out, names::CLUSTER, cluster);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> String {
        copy_for_store(text, &parse(text), 0, false)
    }

    #[test]
    fn whole_text_stays_as_it_is() {
        for text in ["", "a\u{1}b\u{2}", "KEYS\u{1}k\u{1}l\u{2}größe\u{1}1\u{2}"] {
            assert!(!parse(text).needs_rewrite, "{text}");
            assert_eq!(stored(text), text);
        }
        assert_eq!(stored("a\u{1}b"), "a\u{1}b\u{2}");
    }

    #[test]
    fn what_is_no_pair_or_stands_twice_goes() {
        assert_eq!(
            stored("a\u{1}1\u{2}b\u{1}2\u{2}a\u{1}3\u{2}"),
            "b\u{1}2\u{2}a\u{1}3\u{2}"
        );
        assert_eq!(stored("\u{2}x\u{2}y\u{1}\u{2}\u{1}z\u{2}a\u{1}1"), "a\u{1}1\u{2}");
        let many: Vec<String> = (0..40).map(|number| format!("{number}\u{1}v\u{2}")).collect();
        let many = many.concat();
        assert!(!parse(&many).needs_rewrite);
        assert!(parse(&format!("{many}39\u{1}w\u{2}")).needs_rewrite);
        assert!(parse(&format!("{many}0\u{1}w\u{2}")).needs_rewrite);
    }
}
