//! Makes a directory whole again: finds the log's end and brings queues up to it (Apache `CommitLog.recoverNormally`,
//! `recoverAbnormally`, `DefaultMessageStore.recover`).
//!
//! The rule (docs/store.md has it for people):
//! 1. The walk begins, after a clean stop, at the newest record that a queue knows; after a crash at the newest segment that
//!    was durable in log and queues by the checkpoint; in doubt at the log's start.
//! 2. Queues forget everything at or behind the beginning of the walk, and the walk puts it back.
//! 3. The log ends in front of the first record that is not sound. What stands behind it is cut, unless it is older than
//!    the checkpoint: then the log is damaged, not torn, and nothing is changed.
//! 4. A gap between a queue's end and a record of it means that the queue's files are behind or missing: the walk starts
//!    again at the log's start.

use crate::checkpoint::Times;
use crate::commit_log::CommitLog;
use crate::error::StoreError;
use crate::format::{SCHEDULE_TOPIC, Unit, to_i64};
use crate::fs::{Context, Fs};
use crate::log_reader::{LogReader, Step};
use crate::options::Options;
use crate::queues::Queues;
use pyrmq_remoting::message::properties::names;
use pyrmq_remoting::message::{Record, java_hash, sys_flag};
use std::path::Path;

/// Delays of Apache's default `messageDelayLevel`, in seconds, from level 1 on.
const DELAY_LEVELS: [i64; 18] = [
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
];

/// What recovery found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Store time of the newest record, ms.
    pub(crate) last_store_ms: i64,
    /// Records that were put into queues.
    pub(crate) replayed: u64,
}

/// Finds directories of kinds that this store does not write, before anything is changed.
pub(crate) fn refuse_foreign(fs: &dyn Fs, root: &Path) -> Result<(), StoreError> {
    let kinds = [
        (
            "batchconsumequeue",
            "batch consume queues (topics of type BatchCQ)",
        ),
        (
            "consumequeue_ext",
            "extended consume queue entries (enableConsumeQueueExt)",
        ),
        ("compaction/compactionLog", "compacted topics"),
        ("compaction/compactionCq", "compacted topics"),
        ("tieredstore", "tiered storage"),
    ];
    for (name, what) in kinds {
        let path = root.join(name);
        if has_files(fs, &path, 4)? {
            return Err(StoreError::Foreign { path, what });
        }
    }
    for (name, what) in [
        (
            "consumequeue",
            "a RocksDB consume queue (storeType=defaultRocksDB)",
        ),
        ("rocksdbstore", "a RocksDB store with data"),
    ] {
        let path = root.join(name);
        let tables = fs.list(&path).at("list", &path)?;
        let has_tables = tables.iter().any(|entry| {
            !entry.is_directory
                && Path::new(&entry.name)
                    .extension()
                    .is_some_and(|kind| kind == "sst")
        });
        let is_database = name == "consumequeue" && tables.iter().any(|entry| entry.name == "CURRENT");
        if has_tables || is_database {
            return Err(StoreError::Foreign { path, what });
        }
    }
    Ok(())
}

fn has_files(fs: &dyn Fs, path: &Path, depth: u8) -> Result<bool, StoreError> {
    for entry in fs.list(path).at("list", path)? {
        if !entry.is_directory || (depth > 0 && has_files(fs, &path.join(&entry.name), depth - 1)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Recovers log and queues.
pub(crate) fn recover(
    fs: &dyn Fs,
    options: &Options,
    log: &CommitLog,
    queues: &Queues,
    times: Times,
    crashed: bool,
) -> Result<Recovered, StoreError> {
    let start = if crashed {
        safe_segment(log, times)?
    } else {
        newest_known(fs, log, queues)?
    };
    let walk = Walk {
        fs,
        options,
        log,
        queues,
        times,
        crashed,
    };
    let recovered = if let Some(recovered) = walk.run(start, start == log.start())? {
        recovered
    } else {
        tracing::warn!("consume queues are behind the log: they are built again from its start");
        walk.run(log.start(), true)?.unwrap_or_default()
    };
    queues.trim(log.start())?;
    queues.write_out()?;
    Ok(recovered)
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

/// The position of the newest record that a queue knows, if that record is there; else the log's start.
fn newest_known(fs: &dyn Fs, log: &CommitLog, queues: &Queues) -> Result<i64, StoreError> {
    let mut newest = None;
    for queue in queues.all() {
        let last = queue
            .last(fs)?
            .filter(|unit| !unit.is_filler())
            .map(|unit| unit.position);
        newest = newest.max(last);
    }
    let Some(position) = newest.filter(|position| *position >= log.start()) else {
        return Ok(log.start());
    };
    match LogReader::new(log, position, true).step()? {
        Step::Record(_) => Ok(position),
        Step::End(_) => {
            tracing::warn!(
                position,
                "a consume queue knows a record that the log does not have"
            );
            Ok(log.start())
        }
    }
}

struct Walk<'w> {
    fs: &'w dyn Fs,
    options: &'w Options,
    log: &'w CommitLog,
    queues: &'w Queues,
    times: Times,
    crashed: bool,
}

impl Walk<'_> {
    /// Walks from `start`; `None` when a queue has a gap and the walk did not begin at the log's start.
    fn run(&self, start: i64, is_whole: bool) -> Result<Option<Recovered>, StoreError> {
        self.queues.cut(start, self.crashed)?;
        let mut reader = LogReader::new(self.log, start, self.options.check_crc_on_recover);
        let mut recovered = Recovered::default();
        let reason = loop {
            match reader.step()? {
                Step::Record(record) => {
                    recovered.last_store_ms = record.store_timestamp_ms;
                    if !self.dispatch(&record, is_whole)? {
                        return Ok(None);
                    }
                    recovered.replayed += 1;
                }
                Step::End(reason) => break reason,
            }
        };
        let end = reader.position();
        self.check_damage(end, reason)?;
        if self.crashed {
            self.log.cut(end)?;
        }
        self.log.set_appended(end);
        self.log
            .set_flushed(if self.crashed { start.min(end) } else { end });
        Ok(Some(recovered))
    }

    /// Refuses to cut what the checkpoint says was durable.
    fn check_damage(&self, end: i64, reason: Option<String>) -> Result<(), StoreError> {
        let Some(segment) = self.log.segment_at(end) else {
            return Ok(());
        };
        for later in self.log.segments().iter().filter(|later| later.base > end) {
            if let Step::Record(record) = LogReader::new(self.log, later.base, true).step()?
                && (!self.crashed || record.store_timestamp_ms <= self.times.physic_ms)
            {
                return Err(StoreError::Damaged {
                    path: segment.path.clone(),
                    position: end,
                    reason: reason.unwrap_or_else(|| "zero bytes where a record should be".to_owned()),
                });
            }
        }
        if let Some(reason) = reason {
            tracing::warn!(position = end, %reason, "the commit log ends here");
            // Something unsound that no crash explains is kept from being read as a record later.
            self.log.cut(end)?;
        }
        Ok(())
    }

    /// Puts a record into its queue; false when the queue has a gap in front of it that a longer walk can fill.
    fn dispatch(&self, record: &Record<'_>, is_whole: bool) -> Result<bool, StoreError> {
        if sys_flag::is_hidden(record.sys_flag) || record.sys_flag & sys_flag::INNER_BATCH != 0 {
            return Ok(true);
        }
        let queue = self.queues.get_or_add(record.topic, record.queue_id);
        let next = queue.next();
        let is_empty = queue.end() == 0 && queue.min() == 0;
        if record.queue_offset < next {
            if record.queue_offset != 0 {
                tracing::warn!(
                    topic = record.topic,
                    queue = record.queue_id,
                    position = record.physical_offset,
                    "a record with an index that its queue had before: not put into the queue again"
                );
                return Ok(true);
            }
            // The topic was deleted and made again.
            queue.reset(self.fs)?;
        } else if is_empty && record.queue_offset > 0 {
            if !is_whole {
                return Ok(false);
            }
            queue.begin_at(self.fs, record.queue_offset)?;
        } else if record.queue_offset > next {
            if !is_whole {
                return Ok(false);
            }
            for _ in next..record.queue_offset {
                queue.assign(1);
                queue.push(Unit::FILLER);
            }
        }
        queue.assign(1);
        let waiting = queue.push(Unit {
            position: record.physical_offset,
            size: i32::try_from(record.size).unwrap_or(i32::MAX),
            tags_code: tags_code_of(record),
        });
        self.queues.note_unwritten(&queue);
        if waiting >= crate::consume_queue::WRITE_NOW {
            queue.write_out(self.fs)?;
            self.queues.note_unwritten(&queue);
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
