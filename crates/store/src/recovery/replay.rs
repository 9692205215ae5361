//! The replay of the log at the start: finds its end, and puts its records into their queues.
//!
//! The log is read once, with checksums, and nothing is changed before its end is known ([`Replay::find_end`]). Then
//! the queues get their units ([`Replay::fill_queues`]). Those are collected while the log is read, forty bytes per
//! record and at most [`MAX_COLLECTED`] records; what follows these records is read a second time.

use crate::checkpoint::Mark;
use crate::delay::delay_of;
use crate::error::StoreError;
use crate::format::{CqUnit, to_i64, to_u64};
use crate::fs::{Context, Fs};
use crate::log::commit_log::CommitLog;
use crate::log::damage::{no_record_text, record_after};
use crate::log::reader::{LogReader, Step, Trust, end_of};
use crate::queue::consume_queue::{ConsumeQueue, WRITE_NOW};
use crate::queue::deleted_topics::{Positions, is_deleted};
use crate::queue::registry::Queues;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::record::unknown_kind;
use pyrmq_remoting::message::{Record, java_hash, sys_flag};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of records whose units are kept in memory: 80 MiB.
const MAX_COLLECTED: usize = 1 << 21;
/// Minimum size of a record.
const MIN_RECORD_BYTES: i64 = 91;
/// Number of bytes at which all processors read. Below it, everything happens in order, so that a test can replay it.
const PARALLEL_FROM: i64 = 1 << 28;

/// The result of a recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Store time of the newest record, ms.
    pub(crate) last_store_ms: i64,
    /// Records that were replayed.
    pub(crate) replayed: u64,
    /// Whether all queues were built from the log's start.
    pub(crate) rebuilt: bool,
    /// The newest record, if any was read.
    pub(crate) last: Mark,
}

/// Added to the reason after a kill, which damages nothing: something else lost unwritten pages.
const LOST_PAGES: &str = " (no fsync had made this part of the log durable; if its file system was unmounted by force \
                          or its disk was gone for a while, unwritten pages were lost with that: `pyrmq log repair` \
                          mends it)";

/// A record of a queue.
#[derive(Debug)]
struct ReplayedEntry {
    queue: Arc<ConsumeQueue>,
    /// The record's index in the queue.
    index: i64,
    unit: CqUnit,
}

/// The result of reading one segment.
#[derive(Debug)]
struct ReplayedSegment {
    /// Position after its last valid record, or the start of the next segment.
    end: i64,
    /// Why it ends before the segment does, if something invalid is there.
    reason: Option<String>,
    /// The units for the queues of the records before `collected_to`.
    entries: Vec<ReplayedEntry>,
    collected_to: i64,
    /// The number of these records, the newest of them and its store time.
    summary: Recovered,
}

/// The part of the log that was found valid.
#[derive(Debug)]
pub(crate) struct ValidLog {
    start: i64,
    pub(crate) end: i64,
    parts: Vec<ReplayedSegment>,
}

#[derive(Debug)]
pub(crate) struct Replay<'w> {
    pub(crate) fs: &'w dyn Fs,
    pub(crate) log: &'w CommitLog,
    pub(crate) queues: &'w Queues,
    pub(crate) crashed: bool,
    pub(crate) trust: Trust<'w>,
    /// Whether the system has run on since the last write: then only the newest record may be torn, by a write that was
    /// cut off.
    pub(crate) is_kill: bool,
    pub(crate) deleted: &'w Positions,
    pub(crate) check_crc: bool,
    pub(crate) delay_levels_ms: &'w [i64],
}

impl Replay<'_> {
    /// Reads to the log's end, and refuses a log that is damaged before data that was durable. After a clean stop it
    /// cuts what is invalid there; after a crash the caller does. Queues do not change.
    pub(crate) fn find_end(&self, start: i64) -> Result<ValidLog, StoreError> {
        let mut parts = self.read_segments(start)?;
        // A segment in which the log ends invalidates later ones.
        let whole = parts
            .iter()
            .position(|(limit, part)| part.end < *limit)
            .map_or(parts.len(), |last| last + 1);
        parts.truncate(whole);
        let mut parts: Vec<_> = parts.into_iter().map(|(_, part)| part).collect();
        let (end, reason) = parts
            .last_mut()
            .map_or((start, None), |last| (last.end, last.reason.take()));
        let was_durable = Cell::new(false);
        if let Some(segment) = self.log.segment_at(end)
            && let Some(good) = record_after(self.log, end, |position, store_ms| {
                was_durable.set(self.trust.durable.holds(position, store_ms));
                self.is_kill || was_durable.get()
            })?
        {
            let mut reason = reason.unwrap_or_else(no_record_text);
            if !was_durable.get() {
                reason.push_str(LOST_PAGES);
            }
            return Err(StoreError::Damaged {
                path: segment.path.clone(),
                position: end,
                reason,
                good,
            });
        }
        self.refuse_newer(end)?;
        if let Some(reason) = reason {
            tracing::warn!(position = end, %reason, "the commit log ends here");
            // Something invalid that no crash explains must not be read as a record later.
            if !self.crashed {
                self.log.cut(end, false)?;
            }
        }
        Ok(ValidLog { start, end, parts })
    }

    /// Refuses a log that continues with records of an unknown kind: cutting them would lose them.
    fn refuse_newer(&self, end: i64) -> Result<(), StoreError> {
        let Some(segment) = self.log.segment_at(end) else {
            return Ok(());
        };
        let mut head = [0; 8];
        let inside = to_u64(end - segment.base);
        self.log
            .file(&segment)?
            .read_at(&mut head, inside)
            .at("read", &segment.path)?;
        let Some(magic) = unknown_kind(&head) else {
            return Ok(());
        };
        Err(StoreError::Newer {
            path: segment.path.clone(),
            what: format!("a record of an unknown kind at position {end} (magic {magic:08X})"),
        })
    }

    /// Reads every segment from a position on, and finds its end. A segment begins with a record, so each can be read
    /// by itself; if there are several, all processors read.
    fn read_segments(&self, start: i64) -> Result<Vec<(i64, ReplayedSegment)>, StoreError> {
        let length = self.log.segment_bytes();
        let ranges: Vec<(i64, i64)> = self
            .log
            .segments()
            .iter()
            .map(|segment| (segment.base.max(start), segment.base + length))
            .filter(|(from, to)| from < to)
            .collect();
        let budget = AtomicUsize::new(MAX_COLLECTED);
        let is_small = to_i64(ranges.len()) * length < PARALLEL_FROM;
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(ranges.len());
        if is_small || threads < 2 {
            let mut parts = Vec::new();
            for (from, to) in ranges {
                let part = self.read_segment(from, to, &budget)?;
                let is_end = part.end < to;
                parts.push((to, part));
                if is_end {
                    break;
                }
            }
            return Ok(parts);
        }
        let (next, ends_at) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let work = || {
            let mut parts = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((from, to)) = ranges.get(number).copied() else {
                    return Ok(parts);
                };
                if number > ends_at.load(Ordering::Relaxed) {
                    return Ok(parts);
                }
                let part = self.read_segment(from, to, &budget)?;
                if part.end < to {
                    ends_at.fetch_min(number, Ordering::Relaxed);
                }
                parts.push((number, to, part));
            }
        };
        let mut parts = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let mut all = Vec::new();
            for worker in workers {
                let parts: Result<Vec<_>, StoreError> = worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                all.extend(parts?);
            }
            Ok::<_, StoreError>(all)
        })?;
        parts.sort_unstable_by_key(|(number, _, _)| *number);
        Ok(parts.into_iter().map(|(_, to, part)| (to, part)).collect())
    }

    fn read_segment(&self, from: i64, to: i64, budget: &AtomicUsize) -> Result<ReplayedSegment, StoreError> {
        let mut reader = LogReader::new(self.log, from, self.check_crc)
            .trust(self.trust)
            .until(to);
        let mut part = ReplayedSegment {
            end: from,
            reason: None,
            entries: Vec::new(),
            collected_to: from,
            summary: Recovered::default(),
        };
        let mut has_budget = true;
        loop {
            match reader.step()? {
                Step::Record(record) if has_budget => {
                    if let Some(entry) = self.entry_of(&record) {
                        part.entries.push(entry);
                        has_budget = budget
                            .try_update(Ordering::Relaxed, Ordering::Relaxed, |budget| {
                                budget.checked_sub(1)
                            })
                            .is_ok();
                    }
                    part.summary.add_record(&record);
                    part.collected_to = end_of(&record);
                }
                Step::Record(_) => {}
                Step::End(reason) => {
                    part.reason = reason;
                    part.end = reader.position();
                    return Ok(part);
                }
            }
        }
    }

    /// Puts the records of a valid range into their queues; `None` if a queue has a gap and the replay did not begin at
    /// the log's start.
    pub(crate) fn fill_queues(
        &self,
        valid_log: ValidLog,
        is_whole: bool,
    ) -> Result<Option<Recovered>, StoreError> {
        let ValidLog { start, end, parts } = valid_log;
        if self.crashed || is_whole {
            self.queues.cut(self.log, start)?;
        }
        let mut recovered = Recovered::default();
        for part in parts {
            for entry in part.entries {
                if !self.dispatch(&entry, is_whole)? {
                    return Ok(None);
                }
            }
            recovered.add(part.summary);
            let mut reader = LogReader::new(self.log, part.collected_to, false).until(part.end);
            while reader.position() < part.end
                && let Step::Record(record) = reader.step()?
            {
                recovered.add_record(&record);
                if let Some(entry) = self.entry_of(&record)
                    && !self.dispatch(&entry, is_whole)?
                {
                    return Ok(None);
                }
            }
        }
        self.log.set_appended(end);
        self.log
            .set_flushed(if self.crashed { start.min(end) } else { end });
        Ok(Some(recovered))
    }

    /// The unit of a record, if a queue gets it.
    fn entry_of(&self, record: &Record<'_>) -> Option<ReplayedEntry> {
        if sys_flag::is_hidden(record.sys_flag)
            || record.sys_flag & sys_flag::INNER_BATCH != 0
            || is_deleted(self.deleted, record.topic, record.physical_offset)
        {
            return None;
        }
        Some(ReplayedEntry {
            queue: self.queues.get_or_add(record.topic, record.queue_id),
            index: record.queue_offset,
            unit: CqUnit {
                position: record.physical_offset,
                size: i32::try_from(record.size).unwrap_or(i32::MAX),
                tags_code: self.tags_code_of(record),
            },
        })
    }

    /// The tags code of a record's unit.
    fn tags_code_of(&self, record: &Record<'_>) -> i64 {
        match delay_of(record.topic, record.properties, self.delay_levels_ms) {
            Some(delay_ms) => record.store_timestamp_ms + delay_ms,
            None => java_hash::tags_code(record.properties.get(names::TAGS)),
        }
    }

    /// Puts a record into its queue. False: the queue has a gap before it that a longer replay can fill.
    fn dispatch(&self, entry: &ReplayedEntry, is_whole: bool) -> Result<bool, StoreError> {
        let ReplayedEntry { queue, index, unit } = entry;
        let (index, next) = (*index, queue.next());
        if index == 0 && next > 0 {
            // The topic was deleted and created again.
            queue.reset(self.fs)?;
        } else if index != next && self.has_no_record(queue)? {
            if !is_whole {
                return Ok(false);
            }
            // Older records are gone, so the queue begins here.
            queue.begin_at(self.fs, index)?;
        } else if index < next {
            tracing::warn!(
                topic = %queue.topic,
                queue = queue.id,
                position = unit.position,
                "a record with an index that its queue had before: not put into the queue again"
            );
            return Ok(true);
        } else if index > next {
            if !is_whole {
                return Ok(false);
            }
            // The missing records were between the queue's newest record and this one.
            let newest = queue.last(self.fs)?.map_or(0, CqUnit::end).max(self.log.start());
            if index - next > (unit.position - newest) / MIN_RECORD_BYTES {
                tracing::warn!(
                    topic = %queue.topic,
                    queue = queue.id,
                    index,
                    position = unit.position,
                    "a record with an index that cannot be: not put into the queue"
                );
                return Ok(true);
            }
            for _ in next..index {
                queue.assign(1);
                queue.put_back(self.fs, CqUnit::FILLER)?;
            }
        }
        queue.assign(1);
        let waiting = queue.put_back(self.fs, *unit)?;
        if waiting > 0 {
            self.queues.list_unwritten(queue);
        }
        if waiting >= WRITE_NOW {
            self.queues.list_unsynced(queue);
            queue.write_out(self.fs)?;
        }
        Ok(true)
    }

    /// Whether a queue has no units, or its newest unit belongs to a record before the log's start.
    fn has_no_record(&self, queue: &ConsumeQueue) -> Result<bool, StoreError> {
        if queue.end() == queue.min() {
            return Ok(true);
        }
        let newest = queue.last(self.fs)?.filter(|unit| !unit.is_filler());
        Ok(newest.is_some_and(|unit| unit.position < self.log.start()))
    }
}

impl Recovered {
    fn add_record(&mut self, record: &Record<'_>) {
        self.last_store_ms = record.store_timestamp_ms;
        self.last = Mark {
            record: record.physical_offset,
            end: end_of(record),
        };
        self.replayed += 1;
    }

    fn add(&mut self, next: Self) {
        if next.replayed > 0 {
            (self.last_store_ms, self.last) = (next.last_store_ms, next.last);
            self.replayed += next.replayed;
        }
    }
}
