//! From the timer's topic into the timer's log (Apache `TimerMessageStore.enqueue`, `doEnqueue`).

use crate::delivery::timer::{Timers, Work, lock};
use crate::message::properties::{self, names};
use pyrmq_remoting::message::{Record, java_hash, record};
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::{
    GetMessage, Store, StoreError, TIMER_QUEUE, TagFilter, TimerOptions, TimerStore, TimerUnit,
};
use std::sync::Mutex;

const READ_COUNT: usize = 1024;
const READ_BYTES: usize = 4 << 20;

impl Timers {
    /// Gives every message of the topic a unit, unless it has one.
    pub(super) fn enqueue_all(
        &self,
        files: &Mutex<TimerStore>,
        store: &Store,
        work: &mut Work,
    ) -> Result<(), StoreError> {
        if self.options.stop_enqueue {
            return Ok(());
        }
        let end = store.max_offset(TIMER_TOPIC, TIMER_QUEUE);
        loop {
            let known = lock(files).queue_offset();
            let from = known.max(store.min_offset(TIMER_TOPIC, TIMER_QUEUE));
            if from > known {
                tracing::warn!(
                    known,
                    from,
                    "the commit log dropped timer messages that were not taken in"
                );
                lock(files).set_queue_offset(from);
            }
            if from >= end {
                return Ok(());
            }
            let got = store.get(&GetMessage {
                topic: TIMER_TOPIC,
                queue_id: TIMER_QUEUE,
                offset: from,
                max_count: READ_COUNT,
                max_bytes: READ_BYTES,
                tags: TagFilter::All,
            })?;
            let (mut next, mut taken) = (from, 0);
            for record in record::records(&got.body).map_while(Result::ok) {
                self.enqueue(files, work, &record)?;
                (next, taken) = (record.queue_offset + 1, taken + 1);
                lock(files).set_queue_offset(next);
            }
            if taken < got.count {
                tracing::error!(offset = next, "dropped a timer message that is no message");
                next += 1;
            } else {
                next = got.next_offset;
            }
            let mut files = lock(files);
            files.write_out()?;
            if next <= from {
                return Ok(());
            }
            files.set_queue_offset(next);
        }
    }

    fn enqueue(
        &self,
        files: &Mutex<TimerStore>,
        work: &mut Work,
        record: &Record<'_>,
    ) -> Result<(), StoreError> {
        let text = record.properties.as_str().unwrap_or_default();
        let due_ms = properties::find(text, names::TIMER_OUT_MS).and_then(|text| text.parse::<i64>().ok());
        let topic = properties::find(text, names::REAL_TOPIC);
        let (Some(due_ms), Some(topic)) = (due_ms, topic) else {
            tracing::error!(
                offset = record.queue_offset,
                "dropped a timer message without TIMER_OUT_MS and REAL_TOPIC"
            );
            return Ok(());
        };
        let size = i64::try_from(record.size).unwrap_or(i64::MAX);
        work.log_end = work.log_end.max(record.physical_offset + size);
        let deletes = properties::find(text, names::TIMER_DEL_UNIQKEY).is_some();
        let mut files = lock(files);
        let (time_ms, magic) = wait_until(
            &self.options,
            due_ms.saturating_add(self.ahead_ms()),
            work.write_ms,
        );
        // If the message's slot was delivered already, the message waits for the next one, where a recall can still
        // find it. A slot that is being delivered, and those before it, take no more messages: they would not be read.
        let open_ms = work
            .job
            .as_ref()
            .map_or(i64::MIN, |job| job.time_ms + self.options.precision_ms);
        let time_ms = time_ms.max(files.read_ms()).max(open_ms);
        let unit = TimerUnit {
            previous: -1,
            magic: magic | if deletes { TimerUnit::DELETE } else { 0 },
            written_ms: work.write_ms,
            delay_ms: i32::try_from(time_ms - work.write_ms).unwrap_or(i32::MIN),
            position: record.physical_offset,
            size: i32::try_from(record.size).unwrap_or(i32::MAX),
            topic_hash: java_hash::hash(topic),
        };
        files.add(&unit, due_ms)
    }
}

/// The time until which a message waits: its due time, or an earlier one if that is too far ahead for one round.
fn wait_until(options: &TimerOptions, due_ms: i64, write_ms: i64) -> (i64, i32) {
    let window_ms = options.roll_window_ms();
    let over_ms = due_ms - write_ms - window_ms;
    if over_ms < 0 {
        return (due_ms, TimerUnit::DEFAULT);
    }
    let steps = if over_ms < options.roll_window_slots / 3 * options.precision_ms {
        // A shorter round, so that the last one is long enough.
        options.roll_window_slots / 2
    } else {
        options.roll_window_slots
    };
    (
        write_ms + steps * options.precision_ms,
        TimerUnit::DEFAULT | TimerUnit::ROLL,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_ahead_rolls_as_in_apache() {
        let options = TimerOptions {
            roll_window_slots: 30,
            ..TimerOptions::default()
        };
        let rolls = TimerUnit::DEFAULT | TimerUnit::ROLL;
        let now = 1_700_000_000_000;
        assert_eq!(
            wait_until(&options, now + 29_000, now),
            (now + 29_000, TimerUnit::DEFAULT)
        );
        assert_eq!(
            wait_until(&options, now - 1000, now),
            (now - 1000, TimerUnit::DEFAULT)
        );
        assert_eq!(wait_until(&options, now + 30_000, now), (now + 15_000, rolls));
        assert_eq!(wait_until(&options, now + 39_000, now), (now + 15_000, rolls));
        assert_eq!(wait_until(&options, now + 40_000, now), (now + 30_000, rolls));
    }
}
