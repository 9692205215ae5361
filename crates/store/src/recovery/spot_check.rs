//! Looks for queues that lost files since the last stop. `queueEnds` has what we recorded (see `manifest.rs`); after a
//! Java broker's stop only the log shows which queues must exist.
//!
//! So records at the start of each segment are read, `compare_bytes` in all: the whole of a smaller log. A record whose
//! queue is missing, or ends before it, shows that the queues must be rebuilt, unless its topic was deleted since. That
//! is so if no queue of the topic exists and the broker's table does not have it, or if the topic was created again, so
//! that its queues begin after the record. The latter alone counts if a Java broker may have deleted topics. If only we
//! did, whose deletions are recorded, another record of the topic must also be before the start of its own queue.

use crate::error::StoreError;
use crate::format::to_i64;
use crate::fs::Fs;
use crate::log::commit_log::CommitLog;
use crate::log::damage::record_after;
use crate::log::reader::{LogReader, Step};
use crate::queue::deleted_topics::{Positions, is_deleted};
use crate::queue::registry::Queues;
use pyrmq_remoting::body::Json;
use pyrmq_remoting::message::{Record, sys_flag};
use std::cell::OnceCell;
use std::path::Path;

/// Minimum number of bytes read of a segment: what a reader reads at once.
const MIN_SAMPLE_BYTES: i64 = 1 << 20;

/// Looks for a queue that lacks units of records in the log.
#[derive(Debug)]
pub(crate) struct SpotCheck<'c> {
    pub(crate) fs: &'c dyn Fs,
    pub(crate) root: &'c Path,
    pub(crate) log: &'c CommitLog,
    pub(crate) queues: &'c Queues,
    pub(crate) deleted: &'c Positions,
    /// Whether `deleted` has all deletions, because no other broker worked here.
    pub(crate) knows_deletions: bool,
    /// Records from this position on are not checked.
    pub(crate) end: i64,
    /// Maximum number of bytes read.
    pub(crate) budget: i64,
}

/// What a record shows about its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Whole,
    Missing,
    /// The record is missing, unless the topic was deleted and created again.
    Unsure,
}

impl SpotCheck<'_> {
    /// The topic and id of such a queue, if there is one.
    pub(crate) fn run(&self) -> Result<Option<(String, i32)>, StoreError> {
        let table = OnceCell::new();
        let mut missing = None;
        let mut unsure: Vec<(String, i32)> = Vec::new();
        self.each(|record| {
            match self.verdict(record, || knows(self.fs, self.root, &table, record.topic))? {
                Verdict::Whole => {}
                Verdict::Missing => missing = Some((record.topic.to_owned(), record.queue_id)),
                Verdict::Unsure if unsure.iter().any(|(topic, _)| topic == record.topic) => {}
                Verdict::Unsure => unsure.push((record.topic.to_owned(), record.queue_id)),
            }
            Ok(missing.is_none())
        })?;
        if missing.is_some() || unsure.is_empty() {
            return Ok(missing);
        }
        self.each(|record| {
            if let Some(at) = unsure.iter().position(|(topic, _)| topic == record.topic)
                && let Some(queue) = self.queues.get(record.topic, record.queue_id)
                && queue.begins_at_or_after(self.fs, record.physical_offset + 1)?
            {
                unsure.remove(at);
            }
            Ok(!unsure.is_empty())
        })?;
        Ok(unsure.pop())
    }

    /// Visits the inspected records that belong to a queue, until `take` returns false.
    fn each(&self, mut take: impl FnMut(&Record<'_>) -> Result<bool, StoreError>) -> Result<(), StoreError> {
        let log = self.log;
        let bases: Vec<i64> = log.segments().iter().map(|segment| segment.base).collect();
        for (from, to) in samples(&bases, log.segment_bytes(), self.end, self.budget) {
            let limit = from + log.segment_bytes();
            let mut reader = LogReader::new(log, from, false).until(limit);
            while reader.position() < to {
                let is_unsound = match reader.step()? {
                    Step::Record(record) => {
                        let has_queue = !sys_flag::is_hidden(record.sys_flag)
                            && record.sys_flag & sys_flag::INNER_BATCH == 0
                            && !is_deleted(self.deleted, record.topic, record.physical_offset);
                        if has_queue && !take(&record)? {
                            return Ok(());
                        }
                        continue;
                    }
                    Step::End(reason) => reason.is_some(),
                };
                let valid = if is_unsound {
                    record_after(log, reader.position(), |_, _| true)?
                } else {
                    None
                };
                let Some(next) = valid.filter(|next| *next < to) else {
                    break;
                };
                reader = LogReader::new(log, next, false).until(limit);
            }
        }
        Ok(())
    }

    fn verdict(
        &self,
        record: &Record<'_>,
        knows_topic: impl FnOnce() -> bool,
    ) -> Result<Verdict, StoreError> {
        let (fs, position) = (self.fs, record.physical_offset);
        let of = |is_missing| {
            if is_missing {
                Verdict::Missing
            } else {
                Verdict::Whole
            }
        };
        let own = self.queues.get(record.topic, record.queue_id);
        if let Some(queue) = own.filter(|queue| queue.end() > 0) {
            if record.queue_offset < queue.end() {
                return Ok(of(record.queue_offset < queue.min()));
            }
            let last = queue.last(fs)?.map_or(0, |unit| unit.position);
            return Ok(of(position > last));
        }
        let mut has_others = false;
        for other in self.queues.of(record.topic) {
            if other.end() == 0 {
                continue;
            }
            has_others = true;
            if other.min() > 0 || !other.begins_at_or_after(fs, position)? {
                return Ok(Verdict::Missing);
            }
        }
        Ok(match (has_others, self.knows_deletions) {
            (false, _) => of(knows_topic()),
            (true, true) => Verdict::Unsure,
            (true, false) => Verdict::Whole,
        })
    }
}

/// The ranges to read: at the start of each segment, or of every n-th if there are very many.
fn samples(bases: &[i64], segment_bytes: i64, end: i64, budget: i64) -> Vec<(i64, i64)> {
    if budget < MIN_SAMPLE_BYTES {
        return Vec::new();
    }
    let bases: Vec<i64> = bases.iter().copied().filter(|base| *base < end).collect();
    let count = to_i64(bases.len()).max(1);
    let share = (budget / count).max(MIN_SAMPLE_BYTES).min(segment_bytes);
    let step = usize::try_from(share.saturating_mul(count).div_euclid(budget + 1) + 1).unwrap_or(1);
    let sample = |base: i64| (base, (base + share).min(end));
    bases.into_iter().step_by(step).map(sample).collect()
}

/// Whether the broker's table has a topic; true if the table cannot be read.
pub(crate) fn knows(fs: &dyn Fs, root: &Path, table: &OnceCell<Option<Json>>, topic: &str) -> bool {
    let table = table.get_or_init(|| {
        let bytes = fs.read(&root.join("config").join("topics.json")).ok()?;
        Json::parse(&bytes).ok()
    });
    table.as_ref().is_none_or(|table| {
        table
            .get("topicConfigTable")
            .is_none_or(|topics| topics.get(topic).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::samples;

    const BUDGET: i64 = 256 << 20;

    fn bases(count: i64, length: i64) -> Vec<i64> {
        (0..count).map(|number| number * length).collect()
    }

    #[test]
    fn a_log_within_the_budget_is_read_whole() {
        let length = BUDGET / 8;
        assert_eq!(samples(&bases(3, length), length, i64::MAX, BUDGET).len(), 3);
        for (count, length) in [(1, BUDGET), (8, BUDGET / 8), (4096, BUDGET / 4096), (9, 4096)] {
            let end = count * length - 100;
            let found = samples(&bases(count, length), length, end, BUDGET);
            let bytes: i64 = found.iter().map(|(from, to)| to - from).sum();
            assert_eq!(bytes, end, "{count} of {length}");
        }
        assert_eq!(samples(&bases(4, 100), 100, 150, BUDGET), [(0, 100), (100, 150)]);
        assert_eq!(samples(&[], 100, i64::MAX, BUDGET), []);
    }

    #[test]
    fn of_a_larger_log_no_more_than_the_budget_is_read() {
        for (count, length) in [
            (2, BUDGET),
            (10, 1 << 30),
            (300, 1 << 30),
            (10_000, 1 << 30),
            (9999, 65_536),
        ] {
            let found = samples(&bases(count, length), length, i64::MAX, BUDGET);
            let bytes: i64 = found.iter().map(|(from, to)| to - from).sum();
            assert!(
                bytes <= BUDGET && bytes > BUDGET / 3,
                "{count} of {length}: {bytes}"
            );
            let newest = found.last().unwrap().0;
            assert!(
                newest >= (count - 1) * length * 9 / 10,
                "{count} of {length}: {newest}"
            );
        }
    }
}
