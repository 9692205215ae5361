//! Rates at which a consumer gets and handles messages, by topic (Apache `ConsumerStatsManager`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Length of a slot.
const SLOT: Duration = Duration::from_secs(10);
/// Slots of the window of the rates: a minute.
const WINDOW: u64 = 6;
/// Slots that are kept: an hour.
const SLOTS_OF_AN_HOUR: u64 = 360;

/// Rates and mean times over the last minute, or since the start where that is shorter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// Messages received a second.
    pub received: f64,
    /// Messages done a second.
    pub done: f64,
    /// Messages a second whose calls failed.
    pub failed: f64,
    /// Mean time of a pull or pop that brought messages, ms, with the time for which its broker held it. Without one 0.
    pub pull_ms: f64,
    /// Mean time that listeners had a message, or from its receipt to its acknowledgement, ms. Without one 0.
    pub call_ms: f64,
    /// Messages whose calls failed in the last hour.
    pub failed_in_hour: u64,
}

#[derive(Debug, Default)]
struct RateSlot {
    number: u64,
    pulls: u64,
    pull_time: Duration,
    received: u64,
    calls: u64,
    call_time: Duration,
    done: u64,
    failed: u64,
}

impl RateSlot {
    fn add(&mut self, other: &Self) {
        self.pulls += other.pulls;
        self.pull_time += other.pull_time;
        self.received += other.received;
        self.calls += other.calls;
        self.call_time += other.call_time;
        self.done += other.done;
        self.failed += other.failed;
    }
}

/// Counts of the last hour by topic.
#[derive(Debug)]
pub(crate) struct Counted {
    started: Instant,
    // The newest slot of any topic.
    newest: u64,
    topics: BTreeMap<Arc<str>, VecDeque<RateSlot>>,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            newest: 0,
            topics: BTreeMap::new(),
        }
    }
}

impl Counted {
    /// Counts a pull or pop that brought messages.
    pub(crate) fn pulled(&mut self, topic: &Arc<str>, messages: usize, time: Duration) {
        let slot = self.slot(topic);
        slot.pulls += 1;
        slot.pull_time += time;
        slot.received += messages as u64;
    }

    /// Counts messages that listeners, a later poll or an acknowledgement have finished.
    pub(crate) fn finished(&mut self, topic: &Arc<str>, done: usize, failed: usize, time: Duration) {
        let slot = self.slot(topic);
        slot.calls += 1;
        slot.call_time += time;
        slot.done += done as u64;
        slot.failed += failed as u64;
    }

    /// The rates of one topic.
    pub(crate) fn of_topic(&self, topic: &str) -> Rates {
        self.rates(self.topics.get(topic).into_iter())
    }

    /// The rates of all topics together.
    pub(crate) fn of_all(&self) -> Rates {
        self.rates(self.topics.values())
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of an hour are far below 2^52")]
    fn rates<'a>(&self, topics: impl Iterator<Item = &'a VecDeque<RateSlot>>) -> Rates {
        let now = self.started.elapsed();
        let number = now.as_secs() / SLOT.as_secs();
        let first = (number + 1).saturating_sub(WINDOW);
        let (mut minute, mut failed_in_hour) = (RateSlot::default(), 0);
        for slot in topics.flatten() {
            if slot.number + SLOTS_OF_AN_HOUR > number {
                failed_in_hour += slot.failed;
            }
            if slot.number >= first {
                minute.add(slot);
            }
        }
        let seconds = (now.as_secs_f64() - first as f64 * SLOT.as_secs_f64()).max(1.0);
        let mean_ms = |time: Duration, count: u64| {
            if count == 0 {
                return 0.0;
            }
            time.as_secs_f64() * 1000.0 / count as f64
        };
        Rates {
            received: minute.received as f64 / seconds,
            done: minute.done as f64 / seconds,
            failed: minute.failed as f64 / seconds,
            pull_ms: mean_ms(minute.pull_time, minute.pulls),
            call_ms: mean_ms(minute.call_time, minute.done + minute.failed),
            failed_in_hour,
        }
    }

    fn slot(&mut self, topic: &Arc<str>) -> &mut RateSlot {
        let number = self.started.elapsed().as_secs() / SLOT.as_secs();
        let is_old = |slot: &RateSlot| slot.number + SLOTS_OF_AN_HOUR <= number;
        if number != self.newest {
            self.newest = number;
            // Topics of a pattern come and go.
            self.topics
                .retain(|_, slots| slots.back().is_some_and(|last| !is_old(last)));
        }
        let slots = self.topics.entry(topic.clone()).or_default();
        if slots.back().is_none_or(|last| last.number != number) {
            while slots.front().is_some_and(is_old) {
                slots.pop_front();
            }
            slots.push_back(RateSlot {
                number,
                ..RateSlot::default()
            });
        }
        // One was pushed where there was none.
        let last = slots.len() - 1;
        &mut slots[last]
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, SLOT};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn rates_are_those_of_the_last_minute_and_failures_those_of_the_last_hour() {
        let mut counted = Counted::default();
        let topic: Arc<str> = "t".into();
        counted.finished(&topic, 0, 7, Duration::ZERO);
        // Two minutes later.
        counted.started = Instant::now().checked_sub(SLOT * 12).unwrap();
        counted.pulled(&topic, 100, Duration::from_millis(4));
        counted.finished(&topic, 90, 10, Duration::from_millis(200));
        let rates = counted.of_topic("t");
        assert!((1.9..=2.1).contains(&rates.received), "{rates:?}");
        assert!((1.7..=1.9).contains(&rates.done), "{rates:?}");
        assert!((0.15..=0.25).contains(&rates.failed), "{rates:?}");
        assert!((rates.pull_ms - 4.0).abs() < 0.01 && (rates.call_ms - 2.0).abs() < 0.01);
        assert_eq!(rates.failed_in_hour, 17);
        assert_eq!(counted.of_all().failed_in_hour, 17);
        assert_eq!(counted.of_topic("other").failed_in_hour, 0);
    }

    #[test]
    fn topics_without_a_message_for_an_hour_are_forgotten() {
        let mut counted = Counted::default();
        let [left, read]: [Arc<str>; 2] = ["left".into(), "read".into()];
        for topic in [&left, &read] {
            counted.pulled(topic, 1, Duration::ZERO);
        }
        for (minutes, topics) in [(50, 2), (59, 2), (61, 1)] {
            counted.started = Instant::now().checked_sub(Duration::from_mins(minutes)).unwrap();
            counted.pulled(&read, 1, Duration::ZERO);
            assert_eq!(counted.topics.len(), topics, "after {minutes} min");
        }
    }
}
