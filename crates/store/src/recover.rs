//! Makes a directory whole again: finds the log's end and brings queues up to it (Apache `CommitLog.recoverNormally`,
//! `recoverAbnormally`, `DefaultMessageStore.recover`).
//!
//! The rule (docs/store.md has it for people):
//! 1. The walk begins, after a clean stop, behind the newest record that a queue knows; after a crash at the newest segment that
//!    was durable in log and queues by the checkpoint; in doubt at the log's start.
//! 2. Queues forget everything at or behind the beginning of the walk, and the walk puts it back. After a clean stop none has
//!    anything there.
//! 3. The log ends in front of the first record that is not sound. What stands behind it is cut, unless it is older than
//!    the checkpoint: then the log is damaged, not torn, and nothing is changed.
//! 4. A gap between a queue's end and a record of it means that the queue's files are behind or missing: the walk starts
//!    again at the log's start.

use crate::checkpoint::{Checkpoint, LastStop, Times};
use crate::commit_log::CommitLog;
use crate::damage::record_behind;
use crate::error::StoreError;
use crate::format::{SCHEDULE_TOPIC, Unit, to_i64};
use crate::fs::Fs;
use crate::log_reader::{LogReader, Step};
use crate::options::Options;
use crate::queues::{Queues, Seen};
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::{Record, java_hash, sys_flag};

/// Delays of Apache's default `messageDelayLevel`, in seconds, from level 1 on.
const DELAY_LEVELS: [i64; 18] = [
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
];

/// What recovery found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Store time of the newest record, ms.
    pub(crate) last_store_ms: i64,
    /// Records that were walked over.
    pub(crate) replayed: u64,
    /// All queues were built from the log's start.
    pub(crate) rebuilt: bool,
}

/// What recovery works on.
#[derive(Debug)]
pub(crate) struct Recovery<'r> {
    pub(crate) fs: &'r dyn Fs,
    pub(crate) options: &'r Options,
    pub(crate) log: &'r CommitLog,
    pub(crate) queues: &'r Queues,
    pub(crate) checkpoint: &'r Checkpoint,
    /// What the checkpoint held at the start.
    pub(crate) times: Times,
    pub(crate) last_stop: LastStop,
    /// A queue is known to be damaged: all are built from the log's start.
    pub(crate) must_rebuild: bool,
    /// The queues' files as they were found.
    pub(crate) seen: &'r Seen,
}

impl Recovery<'_> {
    /// Recovers log and queues.
    pub(crate) fn run(&self) -> Result<Recovered, StoreError> {
        let (log, queues) = (self.log, self.queues);
        let crashed = self.last_stop.is_crash();
        let (start, known_ms) = if self.must_rebuild {
            self.distrust_queues()?;
            (log.start(), 0)
        } else if crashed {
            (safe_segment(log, self.times)?, 0)
        } else {
            newest_known(self.fs, log, queues)?
        };
        let walk = Walk {
            fs: self.fs,
            log,
            queues,
            times: self.times,
            crashed,
            check_crc: self.options.check_crc_on_recover,
        };
        // Nothing is cut, neither log nor queue, before it is known that the log is whole.
        let end = walk.find_end(start)?;
        queues.straighten_damaged(self.seen)?;
        if crashed {
            log.cut(end)?;
        }
        let mut recovered = if let Some(recovered) = walk.run((start, end), start == log.start())? {
            recovered
        } else {
            tracing::warn!("consume queues are behind the log: they are built again from its start");
            let end = walk.find_end(log.start())?;
            self.distrust_queues()?;
            let mut recovered = walk.run((log.start(), end), true)?.unwrap_or_default();
            recovered.rebuilt = true;
            recovered
        };
        if let LastStop::Crash {
            unsure_from: Some(position),
        } = self.last_stop
        {
            log.write_again(position, log.appended())?;
            log.set_flushed(log.flushed().min(position));
        }
        queues.drop_found()?;
        queues.trim(log.start())?;
        queues.write_out()?;
        recovered.rebuilt |= self.must_rebuild;
        recovered.last_store_ms = recovered.last_store_ms.max(known_ms);
        Ok(recovered)
    }

    /// Durably takes back that the queues are durable, before durable units of theirs are dropped: a stop in the middle of this
    /// must not leave queues behind that look whole.
    fn distrust_queues(&self) -> Result<(), StoreError> {
        self.checkpoint.update(|times| times.logics_ms = 0);
        self.checkpoint.save_changed()
    }
}

/// The beginning of the newest segment whose first record is older than what the checkpoint calls safe.
fn safe_segment(log: &CommitLog, times: Times) -> Result<i64, StoreError> {
    for segment in log.segments().iter().rev() {
        if let Step::Record(record) = LogReader::new(log, segment.base, false).step()?
            && record.store_timestamp_ms <= times.safe_ms()
        {
            return Ok(segment.base);
        }
    }
    Ok(log.start())
}

/// The position behind the newest record that a queue knows, and its store time, if that record is there; else the log's start.
fn newest_known(fs: &dyn Fs, log: &CommitLog, queues: &Queues) -> Result<(i64, i64), StoreError> {
    let mut newest = None;
    for queue in queues.all() {
        let last = queue
            .last(fs)?
            .filter(|unit| !unit.is_filler())
            .map(|unit| unit.position);
        newest = newest.max(last);
    }
    let Some(position) = newest.filter(|position| *position >= log.start()) else {
        return Ok((log.start(), 0));
    };
    match LogReader::new(log, position, true).step()? {
        Step::Record(record) => Ok((end_of(&record), record.store_timestamp_ms)),
        Step::End(_) => {
            tracing::warn!(
                position,
                "a consume queue knows a record that the log does not have"
            );
            Ok((log.start(), 0))
        }
    }
}

struct Walk<'w> {
    fs: &'w dyn Fs,
    log: &'w CommitLog,
    queues: &'w Queues,
    times: Times,
    crashed: bool,
    check_crc: bool,
}

impl Walk<'_> {
    fn reader(&self, start: i64) -> LogReader<'_> {
        let reader = LogReader::new(self.log, start, self.check_crc);
        if self.crashed {
            reader.torn_from(self.times.physic_ms)
        } else {
            reader
        }
    }

    /// Walks to the log's end and refuses a log that is damaged in front of what was durable. Changes nothing.
    fn find_end(&self, start: i64) -> Result<i64, StoreError> {
        let mut reader = self.reader(start);
        let reason = loop {
            if let Step::End(reason) = reader.step()? {
                break reason;
            }
        };
        let end = reader.position();
        let was_durable = |store_ms: i64| !self.crashed || store_ms < self.times.physic_ms;
        if let Some(segment) = self.log.segment_at(end)
            && let Some(good) = record_behind(self.log, end, was_durable)?
        {
            return Err(StoreError::Damaged {
                path: segment.path.clone(),
                position: end,
                reason: reason.unwrap_or_else(|| "zero bytes where a record should be".to_owned()),
                good,
            });
        }
        if let Some(reason) = reason {
            tracing::warn!(position = end, %reason, "the commit log ends here");
            // Something unsound that no crash explains is kept from being read as a record later.
            if !self.crashed {
                self.log.cut(end)?;
            }
        }
        Ok(end)
    }

    /// Puts the records of a range that was found sound into their queues; `None` when a queue has a gap and the walk did not
    /// begin at the log's start.
    fn run(&self, (start, end): (i64, i64), is_whole: bool) -> Result<Option<Recovered>, StoreError> {
        if self.crashed || is_whole {
            self.queues.cut(self.log, start)?;
        }
        let mut reader = LogReader::new(self.log, start, false);
        let mut recovered = Recovered::default();
        while reader.position() < end
            && let Step::Record(record) = reader.step()?
        {
            recovered.last_store_ms = record.store_timestamp_ms;
            if !self.dispatch(&record, is_whole)? {
                return Ok(None);
            }
            recovered.replayed += 1;
        }
        self.log.set_appended(end);
        self.log
            .set_flushed(if self.crashed { start.min(end) } else { end });
        Ok(Some(recovered))
    }

    /// Puts a record into its queue; false when the queue has a gap in front of it that a longer walk can fill.
    fn dispatch(&self, record: &Record<'_>, is_whole: bool) -> Result<bool, StoreError> {
        if sys_flag::is_hidden(record.sys_flag) || record.sys_flag & sys_flag::INNER_BATCH != 0 {
            return Ok(true);
        }
        let queue = self.queues.get_or_add(record.topic, record.queue_id);
        let (index, next) = (record.queue_offset, queue.next());
        if index == 0 && next > 0 {
            // The topic was deleted and made again.
            queue.reset(self.fs)?;
        } else if index != next && queue.end() == queue.min() {
            if !is_whole {
                return Ok(false);
            }
            // Older records are gone: the queue begins here.
            queue.begin_at(self.fs, index)?;
        } else if index < next {
            tracing::warn!(
                topic = record.topic,
                queue = record.queue_id,
                position = record.physical_offset,
                "a record with an index that its queue had before: not put into the queue again"
            );
            return Ok(true);
        } else if index > next {
            if !is_whole {
                return Ok(false);
            }
            for _ in next..index {
                queue.assign(1);
                queue.put_back(self.fs, Unit::FILLER)?;
            }
        }
        queue.assign(1);
        let unit = Unit {
            position: record.physical_offset,
            size: i32::try_from(record.size).unwrap_or(i32::MAX),
            tags_code: tags_code_of(record),
        };
        let waiting = queue.put_back(self.fs, unit)?;
        if waiting > 0 {
            self.queues.note_unwritten(&queue);
        }
        if waiting >= crate::consume_queue::WRITE_NOW {
            self.queues.note_unsynced(&queue);
            queue.write_out(self.fs)?;
        }
        Ok(true)
    }
}

/// What a queue keeps of a record besides its place.
pub(crate) fn tags_code_of(record: &Record<'_>) -> i64 {
    if record.topic == SCHEDULE_TOPIC
        && let Some(level) = record
            .properties
            .get(names::DELAY)
            .and_then(|level| level.parse::<usize>().ok())
        && level > 0
    {
        let seconds = DELAY_LEVELS
            .get(level.min(DELAY_LEVELS.len()) - 1)
            .copied()
            .unwrap_or_default();
        return record.store_timestamp_ms + seconds * 1000;
    }
    java_hash::tags_code(record.properties.get(names::TAGS))
}

/// Position behind a record.
pub(crate) fn end_of(record: &Record<'_>) -> i64 {
    record.physical_offset + to_i64(record.size)
}
