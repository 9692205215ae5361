//! The properties of a message on its way into the log: one look for what the broker needs, one copy with what it adds.
//!
//! ```text
//! as sent    KEYS 0x01 order-42 0x02 UNIQ_KEY 0x01 0A00.. 0x02
//! as stored  the same bytes, then MSG_REGION, TRACE_ON and CLUSTER; UNIQ_KEY too when the sender left it out
//! ```
//! Apache parses them into a map and writes the map back (`SendMessageProcessor`); here they stay bytes unless a key
//! has to go. Later pairs hide earlier ones, as in a map.

/// Between key and value (Apache `MessageDecoder.NAME_VALUE_SEPARATOR`).
pub(crate) const NAME_END: char = '\u{1}';
/// After each pair (Apache `MessageDecoder.PROPERTY_SEPARATOR`).
pub(crate) const PAIR_END: char = '\u{2}';

/// What the broker wants to know of a message's properties.
#[expect(clippy::struct_excessive_bools, reason = "one flag for each property")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Known<'a> {
    /// `UNIQ_KEY`.
    pub(crate) unique_key: Option<&'a str>,
    /// `KEYS`, separated by spaces.
    pub(crate) keys: Option<&'a str>,
    /// `TAGS`.
    pub(crate) tags: Option<&'a str>,
    /// `DELAY`, the delay level.
    pub(crate) delay_level: i32,
    /// `WAIT` is not `false`: the sender wants to hear what the disk did.
    pub(crate) no_wait: bool,
    /// `TRAN_MSG` is `true`.
    pub(crate) is_transaction: bool,
    /// A key of the timer wheel.
    pub(crate) is_timer: bool,
    /// `INNER_NUM`: claims to be an inner batch.
    pub(crate) is_inner_batch: bool,
    /// `MSG_TYPE` is `reply`.
    pub(crate) is_reply: bool,
    /// A key that the broker writes itself or must not store stands in the text: it cannot be copied as it is.
    pub(crate) needs_rewrite: bool,
}

/// The pairs of the wire form; what is no pair is passed over as Apache does.
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

/// One pass over the text.
pub(crate) fn look(properties: &str) -> Known<'_> {
    let mut known = Known::default();
    for (name, value) in pairs(properties) {
        match name {
            "UNIQ_KEY" => known.unique_key = Some(value),
            "KEYS" => known.keys = Some(value),
            "TAGS" => known.tags = Some(value),
            "DELAY" => known.delay_level = value.trim().parse().unwrap_or(0),
            "WAIT" => known.no_wait = value.eq_ignore_ascii_case("false"),
            "TRAN_MSG" => known.is_transaction = value.eq_ignore_ascii_case("true"),
            "TIMER_DELAY_SEC" | "TIMER_DELAY_MS" | "TIMER_DELIVER_MS" => known.is_timer = true,
            "INNER_NUM" => known.is_inner_batch = true,
            "MSG_TYPE" => known.is_reply = value == "reply",
            _ => {}
        }
        known.needs_rewrite |= is_brokers(name);
    }
    known
}

/// Keys that the broker writes itself (first three) or never stores.
fn is_brokers(name: &str) -> bool {
    matches!(name, "MSG_REGION" | "TRACE_ON" | "CLUSTER" | "POP_CK")
}

/// Copies the text, without the pairs that `drop` names, into a buffer with room for `extra` more bytes. The result
/// is empty or ends with a separator.
pub(crate) fn copy(properties: &str, extra: usize, drop: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(properties.len() + 1 + extra);
    for (name, value) in pairs(properties) {
        if !drop(name) {
            append(&mut out, name, value);
        }
    }
    out
}

/// Copies the text for storing: as it is where that will do.
pub(crate) fn copy_for_store(properties: &str, known: &Known<'_>, extra: usize, drop_timers: bool) -> String {
    if known.needs_rewrite || (drop_timers && known.is_timer) {
        return copy(properties, extra, |name| {
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

/// Keys of the timer wheel, which a delay level overrides (Apache `HookUtils.checkIfTimerMessage`).
pub(crate) fn is_timer(name: &str) -> bool {
    matches!(name, "TIMER_DELAY_SEC" | "TIMER_DELAY_MS" | "TIMER_DELIVER_MS")
}

/// Appends one pair.
pub(crate) fn append(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.push(NAME_END);
    out.push_str(value);
    out.push(PAIR_END);
}

/// What every stored message carries besides its own (Apache `AbstractSendMessageProcessor.buildMsgContext`).
pub(crate) fn brokers_own(region: &str, trace_on: bool, cluster: &str) -> String {
    let mut out = String::new();
    append(&mut out, "MSG_REGION", region);
    append(&mut out, "TRACE_ON", if trace_on { "true" } else { "false" });
    append(&mut out, "CLUSTER", cluster);
    out
}
