//! Repairs a directory: finds the log's end and brings the queues up to it (Apache `CommitLog.recoverNormally`,
//! `recoverAbnormally`, `DefaultMessageStore.recover`).
//!
//! The rule (docs/store.md describes it for operators):
//! 1. After a clean stop, the replay begins after the newest record that a queue knows. After a crash, it begins after
//!    the newest record that the checkpoint calls durable in log and queues. A Java broker's checkpoint names no
//!    record: then it begins at the newest segment that is durable by the checkpoint's times. In doubt, it begins at
//!    the log's start.
//! 2. Queues forget everything at or after the beginning of the replay, and the replay puts it back. After a clean stop
//!    none has anything there.
//! 3. The log ends before the first record that is not sound. What follows it is cut, unless it is older than the
//!    checkpoint: then the log is damaged, not torn, and nothing is changed.
//! 4. A gap between a queue's end and a record of it means that the queue's files are too short or missing: the replay
//!    starts again at the log's start. So it does where older records show that a queue lost files (see `spot_check`).

use crate::checkpoint::{Mark, Times};
use crate::error::StoreError;
use crate::log::damage::{Damage, no_record_text, record_in};
use crate::log::reader::{Durable, LogReader, Step, Trust};
use crate::log::segment::Segment;
use crate::queue::manifest::Compared;
use crate::recovery::inspected::Inspected;
use crate::recovery::known::{beginning, durable, notes_from, safe_segment};
use crate::recovery::replay::{Recovered, Replay};
use crate::recovery::spot_check::{SpotCheck, knows};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

/// Recovers log and queues. The flag says whether `queueEnds` is wrong afterwards.
pub(super) fn recover(inspected: &mut Inspected) -> Result<(Recovered, bool), StoreError> {
    inspected.damage = check_oldest_segment(inspected)?;
    inspected
        .queues
        .finish_deletions(&mut inspected.discovered, &inspected.deleted.positions)?;
    let lost = find_lost(inspected).filter(|_| inspected.was_ours);
    if let Some((topic, queue)) = &lost {
        tracing::warn!(
            topic,
            queue,
            "a file is missing since the crash: queues are built again"
        );
        // Repaired, they would look whole to the next start if this one is interrupted.
        inspected.discovered.mark_short_damaged();
    }
    let recovered = Recovery::begin(inspected, lost.is_some())?.run()?;
    inspected.log.remove_half_made()?;
    inspected.log.unshare_last_segment()?;
    Ok((recovered, recovered.rebuilt || find_lost(inspected).is_some()))
}

/// Checks that the oldest segment begins with a record if the next one does, unless a power loss explains that. Most
/// starts read neither of them. Refuses a log whose oldest segment has no record, because it was overwritten. If it has
/// one, or if the disk cannot read a segment, the other messages can be served: returns the damage.
fn check_oldest_segment(inspected: &Inspected) -> Result<Option<Damage>, StoreError> {
    let segments = inspected.log.segments();
    let [oldest, next, ..] = segments.as_slice() else {
        return Ok(None);
    };
    let (damaged, error) = match find_damage(inspected, oldest, next) {
        Ok(None) => return Ok(None),
        Ok(Some(error)) => (oldest.base, error),
        Err(error) => match unreadable(&segments, &error) {
            Some(segment) => (segment.base, error),
            None => return Err(error),
        },
    };
    Ok(Some(Damage {
        from: damaged,
        until: inspected.log.next_segment(damaged),
        error,
    }))
}

/// The segment that the disk could not read, if the error says so.
fn unreadable<'s>(segments: &'s [Arc<Segment>], error: &StoreError) -> Option<&'s Arc<Segment>> {
    let StoreError::Io { path, .. } = error else {
        return None;
    };
    segments.iter().find(|segment| segment.path == *path)
}

/// What is wrong with the oldest segment; an error if it has no record.
fn find_damage(
    inspected: &Inspected,
    oldest: &Arc<Segment>,
    next: &Segment,
) -> Result<Option<StoreError>, StoreError> {
    let log = &inspected.log;
    let reason = match LogReader::new(log, oldest.base, false).step()? {
        Step::Record(_) => return Ok(None),
        Step::End(reason) => reason.unwrap_or_else(no_record_text),
    };
    let mut reader = LogReader::new(log, next.base, false);
    let Step::Record(record) = reader.step()? else {
        return Ok(None);
    };
    let (position, store_ms) = (record.physical_offset, record.store_timestamp_ms);
    if !inspected.last_stop.is_kill() && !durable(inspected)?.holds(position, store_ms) {
        return Ok(None);
    }
    let inside = record_in(log, oldest, oldest.base)?;
    let damage = StoreError::Damaged {
        path: oldest.path.clone(),
        position: oldest.base,
        reason,
        good: inside.unwrap_or(position),
    };
    match inside {
        Some(_) => Ok(Some(damage)),
        None => Err(damage),
    }
}

/// Looks for a queue that lost files since a crash of ours.
fn find_lost(inspected: &Inspected) -> Option<(String, i32)> {
    if !inspected.is_crash() {
        return None;
    }
    let short = inspected.discovered.short();
    let is_short: HashSet<_> = short.iter().map(|queue| Arc::as_ptr(queue)).collect();
    let table = OnceCell::new();
    let queues = &inspected.queues;
    let compared = inspected.manifest.find_lost(
        &inspected.deleted.positions,
        |topic, id, range| {
            let queue = queues.get(topic, id);
            queue.is_some_and(|queue| queue.covers(range, is_short.contains(&Arc::as_ptr(&queue))))
        },
        |topic| {
            !queues.of(topic).is_empty()
                || knows(inspected.fs.as_ref(), &inspected.options.root, &table, topic)
        },
    );
    match compared {
        Compared::Short(topic, queue) => Some((topic, queue)),
        Compared::Whole | Compared::Unknown => None,
    }
}

/// A recovery in progress.
struct Recovery<'r> {
    inspected: &'r Inspected,
    /// Whether a queue is known to be damaged, so that all are built from the log's start.
    must_rebuild: bool,
}

impl<'r> Recovery<'r> {
    /// Loads the queues, and checks whether they must be built from the log's start.
    fn begin(inspected: &'r Inspected, is_lost: bool) -> Result<Self, StoreError> {
        let is_crash = inspected.is_crash();
        let must_rebuild = inspected.queues.load(&inspected.discovered, is_crash)? || is_lost;
        let mut recovery = Self {
            inspected,
            must_rebuild,
        };
        if is_crash && inspected.log.start() == 0 && inspected.queues.any_begins_late() {
            // No file was deleted for its age yet. After a clean stop `queueEnds` decides.
            tracing::warn!("the oldest file of a queue is missing: queues are built again");
            recovery.must_rebuild = true;
        }
        if !is_crash && !recovery.must_rebuild {
            let range_of = |topic: &str, id: i32| inspected.queues.range_of(topic, id);
            let short = match inspected.manifest.find_short(inspected.log.start(), range_of) {
                Compared::Whole => None,
                Compared::Short(topic, queue) => Some((topic, queue)),
                Compared::Unknown => recovery.spot_check(i64::MAX).run()?,
            };
            if let Some((topic, queue)) = short {
                tracing::warn!(
                    topic,
                    queue,
                    "units are missing since the last stop: queues are built again"
                );
                recovery.must_rebuild = true;
            }
        }
        Ok(recovery)
    }

    /// Recovers log and queues.
    fn run(&self) -> Result<Recovered, StoreError> {
        let (log, queues) = (&self.inspected.log, &self.inspected.queues);
        let crashed = self.inspected.is_crash();
        let (start, known, known_ms) = beginning(self.inspected, self.must_rebuild)?;
        let replay = Replay {
            fs: self.inspected.fs.as_ref(),
            log,
            queues,
            crashed,
            trust: Trust {
                durable: durable(self.inspected)?,
                notes: &self.inspected.nul_records,
                notes_from: notes_from(self.inspected),
            },
            is_kill: self.inspected.last_stop.is_kill(),
            deleted: &self.inspected.deleted.positions,
            check_crc: self.inspected.options.check_crc_on_recover,
            delay_levels_ms: &self.inspected.options.delay_levels_ms,
        };
        let recovered = self.replay_from(&replay, start, known)?;
        let mut recovered = if let Some(recovered) = recovered {
            recovered
        } else {
            tracing::warn!("consume queues are behind the log: they are built again from its start");
            let valid_log = replay.find_end(log.start())?;
            self.mark_queues_undurable()?;
            let mut recovered = replay.fill_queues(valid_log, true)?.unwrap_or_default();
            recovered.rebuilt = true;
            recovered
        };
        if !recovered.last.is_some() {
            recovered.last = known;
        }
        if crashed {
            self.rewrite_undurable()?;
        }
        queues.drop_unexplained_units()?;
        queues.trim(log.start(), |_| Ok(()))?;
        queues.write_out()?;
        recovered.rebuilt |= self.must_rebuild;
        recovered.last_store_ms = recovered.last_store_ms.max(known_ms);
        Ok(recovered)
    }

    /// Rewrites the part of the log that is not known to be durable. An fsync of it may have failed before the stop
    /// without a note, because the write of the note failed, too; the next fsync would still return OK.
    fn rewrite_undurable(&self) -> Result<(), StoreError> {
        let log = &self.inspected.log;
        let durable = match durable(self.inspected)? {
            Durable::Before(end) => end,
            Durable::All | Durable::OlderThan(_) => {
                safe_segment(log, self.inspected.times)?.max(log.written_late_from())
            }
        };
        let from = self
            .inspected
            .last_stop
            .abort()
            .unsure_from
            .map_or(durable, |unsure| unsure.min(durable));
        log.rewrite(from, log.appended())?;
        log.set_flushed(log.flushed().min(from));
        Ok(())
    }

    /// Replays from a position on, and after a crash from an older one if queues have units that no record explains.
    /// `None`: queues must be built from the log's start.
    fn replay_from(
        &self,
        replay: &Replay<'_>,
        mut start: i64,
        known: Mark,
    ) -> Result<Option<Recovered>, StoreError> {
        let (log, queues) = (&self.inspected.log, &self.inspected.queues);
        let mut recovered = self.replay_once(replay, start)?;
        if !self.inspected.is_crash() {
            return Ok(recovered);
        }
        if known.is_some() && recovered.is_some() && queues.drop_unexplained_units()? {
            // After a power loss the log may have lost their records; otherwise they were changed from outside.
            start = safe_segment(log, self.inspected.times)?;
            tracing::warn!(
                from = start,
                "consume queues have units that no record explains: more of the log is read"
            );
            // Durable units are about to be dropped.
            self.inspected
                .checkpoint
                .update(|times| times.queues = Mark::default());
            self.inspected.checkpoint.save_changed()?;
            recovered = self.replay_once(replay, start)?;
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

    /// Looks for queues that lost files, by the records before a position.
    fn spot_check(&self, end: i64) -> SpotCheck<'_> {
        SpotCheck {
            fs: self.inspected.fs.as_ref(),
            root: &self.inspected.options.root,
            log: &self.inspected.log,
            queues: &self.inspected.queues,
            deleted: &self.inspected.deleted.positions,
            knows_deletions: self.inspected.knows_deletions,
            end,
            budget: self.inspected.options.compare_bytes,
        }
    }

    /// Replays the log once, from a position on; `None` if a queue has a gap before the replayed records.
    fn replay_once(&self, replay: &Replay<'_>, start: i64) -> Result<Option<Recovered>, StoreError> {
        // Neither log nor queues are cut before the log is known to be whole.
        let valid_log = replay.find_end(start)?;
        if self.must_rebuild {
            self.mark_queues_undurable()?;
        }
        self.inspected.queues.repair_damaged(&self.inspected.discovered)?;
        if self.inspected.is_crash() {
            self.forget_marks_after(valid_log.end)?;
            self.inspected.log.cut(valid_log.end, true)?;
        }
        replay.fill_queues(valid_log, start == self.inspected.log.start())
    }

    /// The log is about to be cut before data that was durable (the newest record was damaged): what is written there
    /// later must not look durable.
    fn forget_marks_after(&self, end: i64) -> Result<(), StoreError> {
        if self.inspected.times.log.end.max(self.inspected.times.queues.end) <= end {
            return Ok(());
        }
        self.inspected.checkpoint.update(|times| {
            times.log = Mark::default();
            times.queues = Mark::default();
        });
        self.inspected.checkpoint.save_changed()
    }

    /// Durably withdraws that the queues are durable, before their durable units are dropped: an interruption must not
    /// leave queues that look whole.
    fn mark_queues_undurable(&self) -> Result<(), StoreError> {
        self.inspected.checkpoint.update(Times::mark_queues_undurable);
        self.inspected.checkpoint.save_changed()
    }
}
