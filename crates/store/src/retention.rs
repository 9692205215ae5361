//! What is deleted when (Apache `CleanCommitLogService`, `CleanConsumeQueueService`).
//!
//! Old segments are deleted at an hour of `deleteWhen`, or at any hour above `diskMaxUsedSpaceRatio`. A segment is old
//! `fileReservedTime` after its last write; above `diskSpaceCleanForciblyRatio` age does not count, unless
//! `diskSpaceEnoughBytes` are free. A round deletes at most ten segments, never the last one. Queues and index follow
//! the log's start. Above `storeMaxBytes` (ours) the oldest segments are deleted at any hour and age.

use crate::dispatch::indexing::Indexing;
use crate::dispatch::queue_maintenance::QueueMaintenance;
use crate::error::StoreError;
use crate::format::parse_file_name;
use crate::fs::{Context, Fs};
use crate::live::Live;
use crate::log::commit_log::CommitLog;
use crate::queue::registry::Queues;
use crate::state::StoreState;
use crate::state::shared::Shared;
use crate::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of segments that one round deletes.
const MAX_PER_ROUND: usize = 10;

/// Deletes old files.
pub(crate) struct Retention {
    pub(crate) state: Arc<StoreState>,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) live: Arc<Live>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) queue_maintenance: Arc<QueueMaintenance>,
    pub(crate) indexing: Arc<Indexing>,
    /// Held by the thread that deletes old files; up to where queues and index have followed the log's start.
    pub(crate) followed: Mutex<i64>,
    pub(crate) deleted_files: AtomicU64,
}

impl Retention {
    pub(crate) fn new(
        shared: &Shared,
        queue_maintenance: &Arc<QueueMaintenance>,
        indexing: &Arc<Indexing>,
    ) -> Self {
        Self {
            state: Arc::clone(&shared.state),
            fs: Arc::clone(&shared.fs),
            live: Arc::clone(&shared.live),
            log: Arc::clone(&shared.log),
            queues: Arc::clone(&shared.queues),
            queue_maintenance: Arc::clone(queue_maintenance),
            indexing: Arc::clone(indexing),
            followed: Mutex::new(shared.log.start()),
            deleted_files: AtomicU64::new(0),
        }
    }

    /// One round of deletion. `now`: delete old segments at any hour. Returns how many files it deleted.
    pub(crate) fn clean(&self, now: bool) -> Result<u64, StoreError> {
        self.try_clean(now)
            .inspect_err(|error| self.state.fail_if_read_only(error))
    }

    fn try_clean(&self, now: bool) -> Result<u64, StoreError> {
        let mut followed = lock(&self.followed);
        self.log.failure.check()?;
        self.state.look_at_disk()?;
        let now_ms = self.fs.now_ms();
        let used = self.state.disk.used_percent();
        let forcibly = used > self.live.disk_clean_forcibly_percent()
            && self.state.disk.free() < self.live.disk_enough_bytes();
        let is_time = now
            || forcibly
            || used > self.live.disk_max_used_percent()
            || self.live.deletes_at(crate::fs::local_hour(now_ms));
        let mut deleted = 0;
        let result = if is_time || self.is_above_limit(self.log.start()) {
            let keep_ms = match (is_time, forcibly) {
                (false, _) => None,
                (true, false) => Some(i64::from(self.live.file_reserved_hours()) * 3_600_000),
                (true, true) => Some(0),
            };
            self.delete_segments(now_ms, keep_ms, &mut deleted)
        } else {
            Ok(())
        };
        let start = self.log.start();
        if start > *followed {
            // Also after a round that failed: otherwise the deleted segments would free no other space.
            deleted += self
                .queues
                .trim(start, |left| self.queue_maintenance.note_ranges(left))?;
            deleted += self.indexing.trim(start)?;
            *followed = start;
            self.state.look_at_disk()?;
        }
        self.deleted_files.fetch_add(deleted, Ordering::Relaxed);
        result.map(|()| deleted)
    }

    /// Whether a log that begins here is larger than `storeMaxBytes`.
    fn is_above_limit(&self, start: i64) -> bool {
        let limit = self.live.store_max_bytes();
        limit > 0 && (self.log.appended() - start).unsigned_abs() > limit
    }

    /// Position before which segments are deleted once another tenth of `storeMaxBytes` is stored; `None` without that
    /// limit.
    pub(crate) fn goes_soon(&self) -> Option<i64> {
        let limit = i64::try_from(self.live.store_max_bytes()).ok()?;
        let keeps_from = self.log.appended() - (limit - limit / 10);
        let segment = self.log.segment_bytes();
        (limit > 0).then(|| (keeps_from + segment - 1).div_euclid(segment) * segment)
    }

    /// Deletes segments above the limit and, if `keep_ms` is given, those that were not written for that time. Counts
    /// them in `gone`; an error concerns the next segment, which was not deleted.
    fn delete_segments(&self, now_ms: i64, keep_ms: Option<i64>, gone: &mut u64) -> Result<(), StoreError> {
        let directory = self.log.directory();
        let files = self.fs.list(directory).at("list", directory)?;
        // Not the log's flushed position: with SYNC_FLUSH that moves a moment before its units reach their queues.
        let durable = self.state.readable.load(Ordering::Acquire);
        let segments = self.log.segments();
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
            let is_old = keep_ms.is_some_and(|keep_ms| keep_ms == 0 || modified + keep_ms <= now_ms);
            if !is_old && !self.is_above_limit(segment.base) {
                break;
            }
            // A segment that is not fsynced does not count as old.
            if segment.base + self.log.segment_bytes() > durable {
                break;
            }
            self.queue_maintenance
                .make_queues_durable(segment.base + self.log.segment_bytes())?;
            self.log.remove_first()?;
            tracing::info!(file = %segment.path.display(), "segment deleted");
            *gone += 1;
        }
        Ok(())
    }
}
