//! What is deleted when (Apache `CleanCommitLogService`, `CleanConsumeQueueService`).
//!
//! Old segments are deleted at an hour of `deleteWhen`, or at any hour above `diskMaxUsedSpaceRatio`. A segment is old
//! `fileReservedTime` after its last write; above `diskSpaceCleanForciblyRatio` age does not count, unless
//! `diskSpaceEnoughBytes` are free. A round deletes at most ten segments, never the last one. Queues and index follow
//! the log's start. Above `storeMaxBytes` (ours) the oldest segments are deleted at any hour and age. A segment that
//! would only be deleted to make space stays while it has another name, such as a snapshot's, since its bytes would
//! stay as well.

use crate::dispatch::indexing::Indexing;
use crate::dispatch::queue_maintenance::QueueMaintenance;
use crate::error::StoreError;
use crate::format::parse_file_name;
use crate::fs::Context;
use crate::log::segment::Segment;
use crate::state::shared::Shared;
use crate::sync::lock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of segments that one round deletes.
const MAX_PER_ROUND: usize = 10;

/// Deletes old files.
pub(crate) struct Retention {
    pub(crate) queue_maintenance: Arc<QueueMaintenance>,
    pub(crate) indexing: Arc<Indexing>,
    /// Held by the thread that deletes old files; up to where queues and index have followed the log's start.
    pub(crate) followed: Mutex<i64>,
    pub(crate) deleted_files: AtomicU64,
    /// Position of the segment last logged as kept because of another name; -1 for none.
    reported: AtomicI64,
    /// What all parts of the store share.
    pub(crate) shared: Shared,
}

/// Why segments may be deleted, apart from `storeMaxBytes`.
#[derive(Debug, Clone, Copy)]
struct Due {
    /// Segments that were not written for that time; `None` at an hour without deletion.
    keep_ms: Option<i64>,
    /// Whether younger segments may be deleted, too, since the disk is nearly full.
    forcibly: bool,
}

impl Retention {
    pub(crate) fn new(
        shared: &Shared,
        queue_maintenance: &Arc<QueueMaintenance>,
        indexing: &Arc<Indexing>,
    ) -> Self {
        Self {
            queue_maintenance: Arc::clone(queue_maintenance),
            indexing: Arc::clone(indexing),
            followed: Mutex::new(shared.log.start()),
            deleted_files: AtomicU64::new(0),
            reported: AtomicI64::new(-1),
            shared: shared.clone(),
        }
    }

    /// One round of deletion. `now`: delete old segments at any hour. Returns how many files it deleted.
    pub(crate) fn clean(&self, now: bool) -> Result<u64, StoreError> {
        self.try_clean(now)
            .inspect_err(|error| self.shared.state.fail_if_read_only(error))
    }

    fn try_clean(&self, now: bool) -> Result<u64, StoreError> {
        let mut followed = lock(&self.followed);
        self.shared.log.failure.check()?;
        self.shared.state.check_disk_space()?;
        let now_ms = self.shared.fs.now_ms();
        let used = self.shared.state.disk.used_percent();
        let forcibly = used > self.shared.live.disk_clean_forcibly_percent()
            && self.shared.state.disk.free() < self.shared.live.disk_enough_bytes();
        let is_time = now
            || forcibly
            || used > self.shared.live.disk_max_used_percent()
            || self.shared.live.deletes_at(crate::fs::local_hour(now_ms));
        let mut deleted = 0;
        let result = if is_time || self.is_above_limit(self.shared.log.start()) {
            let keep_ms = i64::from(self.shared.live.file_reserved_hours()) * 3_600_000;
            let due = Due {
                keep_ms: is_time.then_some(keep_ms),
                forcibly,
            };
            self.delete_segments(now_ms, due, &mut deleted)
        } else {
            Ok(())
        };
        let start = self.shared.log.start();
        if start > *followed {
            // Also after a round that failed: otherwise the deleted segments would free no other space.
            deleted += self
                .shared
                .queues
                .trim(start, |ranges| self.queue_maintenance.record_ranges(ranges))?;
            deleted += self.indexing.trim(start)?;
            *followed = start;
            self.shared.state.check_disk_space()?;
        }
        self.deleted_files.fetch_add(deleted, Ordering::Relaxed);
        result.map(|()| deleted)
    }

    /// Whether a log that begins here is larger than `storeMaxBytes`.
    fn is_above_limit(&self, start: i64) -> bool {
        let limit = self.shared.live.store_max_bytes();
        limit > 0 && (self.shared.log.appended() - start).unsigned_abs() > limit
    }

    /// Position before which segments are deleted once another tenth of `storeMaxBytes` is stored; `None` without that
    /// limit.
    pub(crate) fn deleted_before(&self) -> Option<i64> {
        let limit = i64::try_from(self.shared.live.store_max_bytes()).ok()?;
        let keeps_from = self.shared.log.appended() - (limit - limit / 10);
        let segment = self.shared.log.segment_bytes();
        (limit > 0).then(|| (keeps_from + segment - 1).div_euclid(segment) * segment)
    }

    /// Deletes segments above the limit and those that are due. Counts them in `gone`; an error concerns the next
    /// segment, which was not deleted.
    fn delete_segments(&self, now_ms: i64, due: Due, gone: &mut u64) -> Result<(), StoreError> {
        let directory = self.shared.log.directory();
        let files = self.shared.fs.list(directory).at("list", directory)?;
        // Not the log's flushed position: with SYNC_FLUSH that moves a moment before its units reach their queues.
        let durable = self.shared.state.readable.load(Ordering::Acquire);
        let segments = self.shared.log.segments();
        let oldest = segments
            .iter()
            .take(segments.len().saturating_sub(1))
            .take(MAX_PER_ROUND);
        for segment in oldest {
            let is_it = |name: &str| parse_file_name(name) == Some(segment.base);
            let modified = files
                .iter()
                .find(|file| is_it(&file.name))
                .map_or(now_ms, |file| file.modified_ms);
            let is_old = (due.keep_ms).is_some_and(|keep_ms| keep_ms == 0 || modified + keep_ms <= now_ms);
            let is_due = is_old || self.is_above_limit(segment.base);
            if !(is_due || due.forcibly && self.frees_space(segment)?) {
                break;
            }
            // A segment that is not fsynced does not count as old.
            if segment.base + self.shared.log.segment_bytes() > durable {
                break;
            }
            self.queue_maintenance
                .make_queues_durable(segment.base + self.shared.log.segment_bytes())?;
            self.shared.log.remove_first()?;
            tracing::info!(file = %segment.path.display(), "segment deleted");
            *gone += 1;
        }
        Ok(())
    }
    /// Whether the disk gets the space of a segment back when it is deleted.
    fn frees_space(&self, segment: &Segment) -> Result<bool, StoreError> {
        let path = &segment.path;
        if self.shared.fs.links(path).at("look at", path)? < 2 {
            return Ok(true);
        }
        if self.reported.swap(segment.base, Ordering::Relaxed) != segment.base {
            tracing::warn!(
                file = %path.display(),
                "the disk is nearly full, but the oldest segment has another name, such as a snapshot's: deleting it \
                 would lose messages and free nothing. Move or delete the snapshot"
            );
        }
        Ok(false)
    }
}
