//! How full the disk is, and when that forbids writing (Apache `CleanCommitLogService.isSpaceFull`).
//!
//! Above `diskSpaceWarningLevelRatio` writes are refused until space is free again, unless `diskSpaceEnoughBytes` are
//! free. Below `diskSpaceMinFreeBytes` nothing is written.

use crate::error::StoreError;
use crate::fs::Space;
use crate::live::Live;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The space of the file system, as last measured.
#[derive(Debug, Default)]
pub(crate) struct DiskSpace {
    is_full: AtomicBool,
    /// Whether the system refused a write for lack of space since the last check.
    was_refused: AtomicBool,
    total: AtomicU64,
    free: AtomicU64,
    /// Bytes that may be written before the space is checked again.
    credit: AtomicI64,
}

/// Minimum number of written bytes between two checks.
const MIN_CREDIT: u64 = 1 << 18;

impl DiskSpace {
    pub(crate) fn set(&self, space: Space, live: &Live) {
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

    /// Records that the system refused a write for lack of space: nothing is written until the next check.
    pub(crate) fn refuse(&self) {
        self.was_refused.store(true, Ordering::Relaxed);
        self.is_full.store(true, Ordering::Release);
    }

    /// Counts written bytes. True: the space should be checked now, since a fast writer fills a small disk between two
    /// periodic checks.
    pub(crate) fn spend(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.credit.fetch_sub(bytes, Ordering::Relaxed) < bytes
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// The limit that forbids writing, if any does.
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

    pub(crate) fn used_percent(&self) -> u8 {
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
