//! How many messages the callers of `receive` have: those that are neither acknowledged nor given back while their time
//! lasts.
//!
//! A caller may forget a message without reporting it. So the counts are kept by the second in which the invisible time
//! of the messages ends, and past seconds do not count.

use pyrmq_remoting::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Messages by the second in which their time ends.
type Ends = BTreeMap<u64, usize>;
/// By topic and broker.
type CountsByTopic = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Ends>>;

/// The numbers by topic and broker.
#[derive(Debug)]
pub(crate) struct InHand {
    started: Instant,
    // Guards the numbers. Nothing else is locked under it.
    counts: Mutex<CountsByTopic>,
}

impl Default for InHand {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            counts: Mutex::default(),
        }
    }
}

impl InHand {
    fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_secs()
    }

    /// Counts a message that a caller has from now on, until this time at most.
    pub(super) fn add(&self, (topic, broker): (&Arc<str>, &Arc<str>), until: Instant, now: Instant) {
        let mut counts = lock(&self.counts);
        let brokers = counts.entry(topic.clone()).or_default();
        let ends = brokers.entry(broker.clone()).or_default();
        let second = self.second(now);
        while let Some(first) = ends.first_entry()
            && *first.key() < second
        {
            first.remove();
        }
        *ends.entry(self.second(until)).or_default() += 1;
    }

    /// Uncounts a message that was counted until this time.
    pub(super) fn remove(&self, topic: &str, broker: &str, until: Instant) {
        let mut counts = lock(&self.counts);
        let ends = counts.get_mut(topic).and_then(|brokers| brokers.get_mut(broker));
        if let Some(count) = ends.and_then(|ends| ends.get_mut(&self.second(until))) {
            *count = count.saturating_sub(1);
        }
    }

    /// Messages of a broker's topic that callers have. One whose time has passed may count for another second.
    pub(super) fn count_of(&self, topic: &str, broker: &str, now: Instant) -> usize {
        let counts = lock(&self.counts);
        let ends = counts.get(topic).and_then(|brokers| brokers.get(broker));
        ends.map_or(0, |ends| {
            ends.range(self.second(now)..).map(|(_, count)| count).sum()
        })
    }

    /// All messages that callers have, also of topics that were left.
    pub(super) fn count(&self, now: Instant) -> usize {
        let counts = lock(&self.counts);
        let each = counts.values().flat_map(BTreeMap::values);
        let alive = each.flat_map(|ends| ends.range(self.second(now)..));
        alive.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, BTreeMap, InHand, Instant, lock};
    use std::time::Duration;

    #[test]
    fn messages_count_until_they_are_settled_or_their_time_is_over() {
        let in_hand = InHand::default();
        let (topic, other, broker): (Arc<str>, Arc<str>, Arc<str>) = ("t".into(), "u".into(), "b".into());
        let start = in_hand.started;
        let after = |seconds| start + Duration::from_secs(seconds);
        for until in [after(10), after(10), after(20)] {
            in_hand.add((&topic, &broker), until, start);
        }
        in_hand.add((&other, &broker), after(20), start);
        assert_eq!((in_hand.count_of("t", "b", start), in_hand.count(start)), (3, 4));
        in_hand.remove("t", "b", after(10));
        // What was not counted, and what is counted no longer.
        in_hand.remove("t", "b", after(15));
        in_hand.remove("nowhere", "b", after(10));
        assert_eq!(in_hand.count_of("t", "b", start), 2);
        assert_eq!(
            in_hand.count_of("t", "b", after(11)),
            1,
            "the time of one is over"
        );
        assert_eq!(
            (in_hand.count_of("t", "b", after(21)), in_hand.count(after(21))),
            (0, 0)
        );
    }

    #[test]
    fn seconds_that_are_over_are_forgotten() {
        let in_hand = InHand::default();
        let (topic, broker): (Arc<str>, Arc<str>) = ("t".into(), "b".into());
        for second in 0..100 {
            let now = in_hand.started + Duration::from_secs(second);
            in_hand.add((&topic, &broker), now + Duration::from_secs(3), now);
        }
        let kept: usize = {
            let counts = lock(&in_hand.counts);
            counts
                .values()
                .flat_map(BTreeMap::values)
                .map(BTreeMap::len)
                .sum()
        };
        assert_eq!(kept, 4);
        let none: Instant = in_hand.started + Duration::from_secs(103);
        assert_eq!(in_hand.count(none), 0);
    }
}
