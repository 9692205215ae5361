//! When a delayed message is due. The entry of its queue carries this time instead of a tag's hash (Apache
//! `CommitLog.checkMessageAndReturnSize`, `ScheduleMessageService.computeDeliverTimestamp`).

use pyrmq_remoting::message::properties::{Properties, names};
use pyrmq_remoting::names::SCHEDULE_TOPIC;

/// The delay of a level that does not exist, in ms (Apache).
const UNKNOWN_LEVEL_MS: i64 = 1000;

/// Parses `messageDelayLevel`: numbers with s, m, h or d, separated by spaces, to milliseconds, level 1 first. `None`:
/// the text is not such a list.
pub fn parse_levels(text: &str) -> Option<Vec<i64>> {
    let read = |word: &str| {
        let unit_ms = match word.chars().last()? {
            's' => 1000,
            'm' => 60_000,
            'h' => 3_600_000,
            'd' => 86_400_000,
            _ => return None,
        };
        let number: i64 = word.get(..word.len() - 1)?.parse().ok()?;
        number.checked_mul(unit_ms).filter(|delay| *delay >= 0)
    };
    let levels: Option<Vec<i64>> = text.split_whitespace().map(read).collect();
    levels.filter(|levels| !levels.is_empty())
}

/// The delay in ms after which a record of the schedule topic is due; `None` for other records.
pub(crate) fn delay_of(topic: &str, properties: Properties<'_>, levels_ms: &[i64]) -> Option<i64> {
    if topic != SCHEDULE_TOPIC {
        return None;
    }
    let level: usize = properties.get(names::DELAY)?.parse().ok()?;
    let last = level.checked_sub(1)?.min(levels_ms.len().saturating_sub(1));
    Some(levels_ms.get(last).copied().unwrap_or(UNKNOWN_LEVEL_MS))
}
