//! Makes a directory whole again: finds the log's end and brings queues up to it (Apache `CommitLog.recoverNormally`,
//! `recoverAbnormally`, `DefaultMessageStore.recover`).
//!
//! The rule (docs/store.md has it for people):
//! 1. The replay begins, after a clean stop, behind the newest record that a queue knows; after a crash behind the
//!    newest record that was durable in log and queues by the checkpoint, or, where that does not name one (a Java
//!    broker wrote it), at the newest segment that was by the checkpoint's times; in doubt at the log's start.
//! 2. Queues forget everything at or behind the beginning of the replay, and the replay puts it back. After a clean
//!    stop none has anything there.
//! 3. The log ends in front of the first record that is not sound. What stands behind it is cut, unless it is older
//!    than the checkpoint: then the log is damaged, not torn, and nothing is changed.
//! 4. A gap between a queue's end and a record of it means that the queue's files are behind or missing: the replay
//!    starts again at the log's start. So it does where older records show that a queue lost files (see `spot_check`).

pub(crate) mod pop;
pub(crate) mod replay;
pub(crate) mod spot_check;
pub(crate) mod unsupported_formats;

use crate::checkpoint::{Checkpoint, LastStop, Mark, SLACK_MS, Times};
use crate::error::StoreError;
use crate::fs::Fs;
use crate::log::commit_log::CommitLog;
use crate::log::nul_records::NulRecords;
use crate::log::reader::{Durable, LogReader, Step, Trust};
use crate::options::Options;
use crate::queue::deleted_topics::Positions;
use crate::queue::manifest::{Compared, QueueManifest};
use crate::queue::registry::{DiscoveredQueues, Queues};
use crate::recovery::replay::{Replay, end_of};
use crate::recovery::spot_check::{SpotCheck, knows};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// What recovery found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Store time of the newest record, ms.
    pub(crate) last_store_ms: i64,
    /// Records that were replayed.
    pub(crate) replayed: u64,
    /// All queues were built from the log's start.
    pub(crate) rebuilt: bool,
    /// The newest record, if one was met.
    pub(crate) last: Mark,
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
    pub(crate) discovered: &'r DiscoveredQueues,
    /// Whole records that look torn.
    pub(crate) nul_records: &'r NulRecords,
    /// Topics that were deleted.
    pub(crate) deleted: &'r Positions,
    /// They are all that were.
    pub(crate) knows_deletions: bool,
}

impl Recovery<'_> {
    /// Recovers log and queues.
    pub(crate) fn run(&self) -> Result<Recovered, StoreError> {
        let (log, queues) = (self.log, self.queues);
        let crashed = self.last_stop.is_crash();
        let (start, known, known_ms) = self.beginning()?;
        let replay = Replay {
            fs: self.fs,
            log,
            queues,
            crashed,
            trust: Trust {
                durable: self.durable()?,
                notes: self.nul_records,
                notes_from: self.notes_from(),
            },
            is_kill: self.last_stop.is_kill(),
            deleted: self.deleted,
            check_crc: self.options.check_crc_on_recover,
            delay_levels_ms: &self.options.delay_levels_ms,
        };
        let recovered = self.replay_from(&replay, start, known)?;
        let mut recovered = if let Some(recovered) = recovered {
            recovered
        } else {
            tracing::warn!("consume queues are behind the log: they are built again from its start");
            let valid_log = replay.find_end(log.start())?;
            self.distrust_queues()?;
            let mut recovered = replay.run(valid_log, true)?.unwrap_or_default();
            recovered.rebuilt = true;
            recovered
        };
        if !recovered.last.is_some() {
            recovered.last = known;
        }
        if crashed {
            self.write_again()?;
        }
        queues.drop_found()?;
        queues.trim(log.start(), |_| Ok(()))?;
        queues.write_out()?;
        recovered.rebuilt |= self.must_rebuild;
        recovered.last_store_ms = recovered.last_store_ms.max(known_ms);
        Ok(recovered)
    }

    /// Writes again what of the log is not known to be durable. Before the stop an fsync of it may have failed without
    /// a note of that, because the write of the note failed, too: the next fsync would say OK all the same.
    fn write_again(&self) -> Result<(), StoreError> {
        let log = self.log;
        let durable = match self.durable()? {
            Durable::InFrontOf(end) => end,
            Durable::All | Durable::OlderThan(_) => {
                safe_segment(log, self.times)?.max(log.written_late_from())
            }
        };
        let from = self
            .last_stop
            .abort()
            .unsure_from
            .map_or(durable, |unsure| unsure.min(durable));
        log.write_again(from, log.appended())?;
        log.set_flushed(log.flushed().min(from));
        Ok(())
    }

    /// Replays from a position on, and after a crash from an older one where queues have units that no record explains.
    /// `None` where queues must be built from the log's start.
    fn replay_from(
        &self,
        replay: &Replay<'_>,
        mut start: i64,
        known: Mark,
    ) -> Result<Option<Recovered>, StoreError> {
        let (log, queues) = (self.log, self.queues);
        let mut recovered = self.attempt(replay, start)?;
        if !self.last_stop.is_crash() {
            return Ok(recovered);
        }
        if known.is_some() && recovered.is_some() && queues.drop_found()? {
            // After a power loss the log may have lost their records; else somebody changed them.
            start = safe_segment(log, self.times)?;
            tracing::warn!(
                from = start,
                "consume queues have units that no record explains: more of the log is read"
            );
            // Durable units are about to be dropped.
            self.checkpoint.update(|times| times.queues = Mark::default());
            self.checkpoint.save_changed()?;
            recovered = self.attempt(replay, start)?;
        }
        if recovered.is_some()
            && start > log.start()
            && let Some((topic, queue)) = self.spot_check(start).run()?
        {
            tracing::warn!(topic, queue, "units are missing that were there before the crash");
            return Ok(None);
        }
        Ok(recovered)
    }

    /// Looks for queues that lost files, by the records in front of a position.
    pub(crate) fn spot_check(&self, end: i64) -> SpotCheck<'_> {
        SpotCheck {
            fs: self.fs,
            root: &self.options.root,
            log: self.log,
            queues: self.queues,
            deleted: self.deleted,
            knows_deletions: self.knows_deletions,
            end,
            budget: self.options.compare_bytes,
        }
    }

    /// One replay from a position on; `None` when a queue has a gap in front of what it met.
    fn attempt(&self, replay: &Replay<'_>, start: i64) -> Result<Option<Recovered>, StoreError> {
        // Nothing is cut, neither log nor queue, before it is known that the log is whole.
        let valid_log = replay.find_end(start)?;
        if self.must_rebuild {
            self.distrust_queues()?;
        }
        self.queues.straighten_damaged(self.discovered)?;
        if self.last_stop.is_crash() {
            self.forget_marks_behind(valid_log.end)?;
            self.log.cut(valid_log.end, true)?;
        }
        replay.run(valid_log, start == self.log.start())
    }

    /// Where the replay begins, the record in front of that and its store time, as far as they are known.
    fn beginning(&self) -> Result<(i64, Mark, i64), StoreError> {
        let log = self.log;
        if self.must_rebuild {
            return Ok((log.start(), Mark::default(), 0));
        }
        if !self.last_stop.is_crash() {
            return newest_known(self.fs, log, self.queues);
        }
        if let Some(store_ms) = store_time_of(log, self.times.queues)? {
            let mark = self.times.queues;
            return Ok((mark.end, mark, store_ms));
        }
        Ok((safe_segment(log, self.times)?, Mark::default(), 0))
    }

    /// What of the log was durable before the last stop.
    fn durable(&self) -> Result<Durable, StoreError> {
        Ok(if !self.last_stop.is_crash() {
            Durable::All
        } else if self.is_past(self.times.log) || store_time_of(self.log, self.times.log)?.is_some() {
            Durable::InFrontOf(self.times.log.end)
        } else {
            // A clock of ours that goes back by less is not noted. A Java broker's store has no mark, and stops the
            // start rather than lose the good records behind a damaged one.
            let slack_ms = if self.times.log.is_some() { SLACK_MS } else { 0 };
            Durable::OlderThan(self.times.physic_ms - slack_ms)
        })
    }

    /// From where on each whole record that looks torn was noted.
    fn notes_from(&self) -> i64 {
        let noted_from = self.last_stop.abort().notes_from;
        noted_from.map_or(i64::MAX, |from| from.max(self.nul_records.complete_from()))
    }

    /// True for a mark whose record retention has taken.
    fn is_past(&self, mark: Mark) -> bool {
        mark.is_some() && mark.record < self.log.start()
    }

    /// The log is about to be cut in front of what was durable (the newest record was damaged): what is written there
    /// from now on must not look durable.
    fn forget_marks_behind(&self, end: i64) -> Result<(), StoreError> {
        if self.times.log.end.max(self.times.queues.end) <= end {
            return Ok(());
        }
        self.checkpoint.update(|times| {
            times.log = Mark::default();
            times.queues = Mark::default();
        });
        self.checkpoint.save_changed()
    }

    /// Durably takes back that the queues are durable, before durable units of theirs are dropped: a stop in the middle
    /// of this must not leave queues behind that look whole.
    fn distrust_queues(&self) -> Result<(), StoreError> {
        self.checkpoint.update(Times::distrust_queues);
        self.checkpoint.save_changed()
    }
}

/// Looks for queues that lost files since a crash of ours.
pub(crate) fn find_lost(
    fs: &dyn Fs,
    root: &Path,
    (queues, discovered): (&Queues, &DiscoveredQueues),
    deleted: &Positions,
    manifest: &QueueManifest,
) -> Compared {
    let short = discovered.short();
    let is_short: HashSet<_> = short.iter().map(|queue| Arc::as_ptr(queue)).collect();
    let table = OnceCell::new();
    manifest.find_lost(
        deleted,
        |topic, id, range| {
            let queue = queues.get(topic, id);
            queue.is_some_and(|queue| queue.covers(range, is_short.contains(&Arc::as_ptr(&queue))))
        },
        |topic| !queues.of(topic).is_empty() || knows(fs, root, &table, topic),
    )
}

/// The store time of a mark's record, if the log has it as the mark says.
fn store_time_of(log: &CommitLog, mark: Mark) -> Result<Option<i64>, StoreError> {
    if !mark.is_some() || mark.record < log.start() {
        return Ok(None);
    }
    Ok(match LogReader::new(log, mark.record, true).step()? {
        Step::Record(record) if end_of(&record) == mark.end => Some(record.store_timestamp_ms),
        _ => None,
    })
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

/// The position behind the newest record that a queue knows, that record and its store time, if it is there; else the
/// log's start.
fn newest_known(fs: &dyn Fs, log: &CommitLog, queues: &Queues) -> Result<(i64, Mark, i64), StoreError> {
    let mut newest = None;
    for queue in queues.all() {
        let last = queue
            .last(fs)?
            .filter(|unit| !unit.is_filler())
            .map(|unit| unit.position);
        newest = newest.max(last);
    }
    let Some(position) = newest.filter(|position| *position >= log.start()) else {
        return Ok((log.start(), Mark::default(), 0));
    };
    match LogReader::new(log, position, true).step()? {
        Step::Record(record) => {
            let end = end_of(&record);
            let mark = Mark {
                record: position,
                end,
            };
            Ok((end, mark, record.store_timestamp_ms))
        }
        Step::End(_) => {
            tracing::warn!(
                position,
                "a consume queue knows a record that the log does not have"
            );
            Ok((log.start(), Mark::default(), 0))
        }
    }
}
