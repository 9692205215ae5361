//! What is deleted when, and when the disk is too full to write (Apache `CleanCommitLogService`,
//! `CleanConsumeQueueService`).
//!
//! Old segments go at an hour of `deleteWhen`, or at any hour above `diskMaxUsedSpaceRatio`; "old" is
//! `fileReservedTime` since the last write, except above `diskSpaceCleanForciblyRatio`, where age does not count. At
//! most ten go in a round, the last one never. Queues and index follow the log's start. Above
//! `diskSpaceWarningLevelRatio` writes are refused until space is back. These two ratios do not count while
//! `diskSpaceEnoughBytes` are free; below `diskSpaceMinFreeBytes` nothing is written.

use crate::engine::Engine;
use crate::error::StoreError;
use crate::format::parse_file_name;
use crate::fs::{Context, Space};
use crate::live::Live;
use crate::sync::lock;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Segments that one round deletes at most.
const MAX_PER_ROUND: usize = 10;

/// What is known of the file system.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    is_full: AtomicBool,
    /// The system refused a write for want of space since the last look.
    was_refused: AtomicBool,
    total: AtomicU64,
    free: AtomicU64,
    /// Bytes that may still be written before the space is looked at again.
    credit: AtomicI64,
}

/// The space is not looked at more often than this.
const MIN_CREDIT: u64 = 1 << 18;

impl Disk {
    fn set(&self, space: Space, live: &Live) {
        self.total.store(space.total, Ordering::Relaxed);
        self.free.store(space.free, Ordering::Relaxed);
        self.was_refused.store(false, Ordering::Relaxed);
        let left = space.free.saturating_sub(live.disk_min_free_bytes());
        let credit = i64::try_from((left / 2).max(MIN_CREDIT)).unwrap_or(i64::MAX);
        self.credit.store(credit, Ordering::Relaxed);
        let is_full = self.limit(live).is_some();
        if self.is_full.swap(is_full, Ordering::Release) != is_full {
            let limit = self.limit(live).unwrap_or_default();
            tracing::warn!(free_bytes = space.free, is_full, limit, "disk space");
        }
    }

    /// The system refused a write for want of space: nothing is written until the next look.
    pub(crate) fn refuse(&self) {
        self.was_refused.store(true, Ordering::Relaxed);
        self.is_full.store(true, Ordering::Release);
    }

    /// Notes that bytes were written. True when it is time to look at the space: a fast writer fills a small disk
    /// between two looks of the clock.
    pub(crate) fn spend(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.credit.fetch_sub(bytes, Ordering::Relaxed) < bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// What forbids writing, if anything does.
    fn limit(&self, live: &Live) -> Option<String> {
        let free = self.free();
        if free < live.disk_min_free_bytes() {
            return Some(format!(
                "diskSpaceMinFreeBytes={} forbids to write",
                live.disk_min_free_bytes()
            ));
        }
        if self.used_percent() > live.disk_warning_percent() && free < live.disk_enough_bytes() {
            return Some(format!(
                "diskSpaceWarningLevelRatio={} (which counts below diskSpaceEnoughBytes={}) forbids to write",
                live.disk_warning_percent(),
                live.disk_enough_bytes()
            ));
        }
        self.was_refused
            .load(Ordering::Relaxed)
            .then(|| "the system refused a write since then (a full disk or a quota)".to_owned())
    }

    fn used_percent(&self) -> u8 {
        let (total, free) = (
            self.total.load(Ordering::Relaxed),
            self.free.load(Ordering::Relaxed),
        );
        let used = u128::from(total.saturating_sub(free)) * 100;
        u8::try_from(used.checked_div(u128::from(total)).unwrap_or_default()).unwrap_or(100)
    }

    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub(crate) fn ratio(&self) -> f64 {
        let total = self.total.load(Ordering::Relaxed);
        if total == 0 {
            return 0.0;
        }
        1.0 - self.free() as f64 / total as f64
    }

    pub(crate) fn check(&self, live: &Live, log: &Path) -> Result<(), StoreError> {
        if !self.is_full() {
            return Ok(());
        }
        Err(StoreError::DiskFull {
            path: log.to_owned(),
            used_percent: self.used_percent(),
            free_bytes: self.free(),
            limit: self.limit(live).unwrap_or_default(),
        })
    }
}

impl Engine {
    /// Looks how full the disk is.
    pub(crate) fn look_at_disk(&self) -> Result<(), StoreError> {
        let directory = self.log.directory();
        let space = self.fs.space(directory).at("read the space of", directory)?;
        self.disk.set(space, &self.live);
        Ok(())
    }

    /// One round of deletion; `now` deletes what is old enough at any hour. Says how many files went.
    pub(crate) fn clean(&self, now: bool) -> Result<u64, StoreError> {
        self.try_clean(now)
            .inspect_err(|error| self.fail_if_read_only(error))
    }

    fn try_clean(&self, now: bool) -> Result<u64, StoreError> {
        let mut followed = lock(&self.cleaning);
        self.log.failure.check()?;
        self.look_at_disk()?;
        let now_ms = self.fs.now_ms();
        let used = self.disk.used_percent();
        let forcibly = used > self.live.disk_clean_forcibly_percent()
            && self.disk.free() < self.live.disk_enough_bytes();
        let is_time = now
            || forcibly
            || used > self.live.disk_max_used_percent()
            || self.live.deletes_at(crate::fs::local_hour(now_ms));
        let mut deleted = 0;
        let result = if is_time {
            self.delete_segments(now_ms, forcibly, &mut deleted)
        } else {
            Ok(())
        };
        let start = self.log.start();
        if start > *followed {
            // Also after a round in which something failed: what is gone makes no space for anything else otherwise.
            deleted += self.queues.trim(start, |left| self.note_ranges(left))?;
            deleted += self.index.as_ref().map_or(Ok(0), |index| index.trim(start))?;
            *followed = start;
            self.look_at_disk()?;
        }
        self.deleted_files.fetch_add(deleted, Ordering::Relaxed);
        result.map(|()| deleted)
    }

    /// Deletes old segments and counts them; an error is what kept the next one from going.
    fn delete_segments(&self, now_ms: i64, forcibly: bool, gone: &mut u64) -> Result<(), StoreError> {
        let keep_ms = i64::from(self.live.file_reserved_hours()) * 3_600_000;
        let directory = self.log.directory();
        let files = self.fs.list(directory).at("list", directory)?;
        // Not what the log has flushed: with SYNC_FLUSH that moves a moment before units of it reach their queues.
        let durable = self.readable.load(Ordering::Acquire);
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
            if !forcibly && modified + keep_ms > now_ms {
                break;
            }
            // What was not fsynced yet is not old.
            if segment.base + self.log.segment_bytes() > durable {
                break;
            }
            self.make_queues_durable(segment.base + self.log.segment_bytes())?;
            self.log.remove_first()?;
            tracing::info!(file = %segment.path.display(), "segment deleted");
            *gone += 1;
        }
        Ok(())
    }
}
