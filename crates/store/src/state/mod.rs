//! Whether the store accepts messages, and what prevents it. All parts check this, and report their failures here.
//!
//! A failed write or fsync is final: the store turns read-only, and the next start checks everything. A full disk, and
//! consume queues that cannot be written, are temporary.

pub(crate) mod append_hold;
pub(crate) mod append_state;
mod disk_space;
pub(crate) mod listeners;
pub(crate) mod shared;
pub(crate) mod stall;

use crate::checkpoint::abort::mark_unsure;
use crate::error::StoreError;
use crate::fs::{Context, Fs};
use crate::group_commit::GroupCommit;
use crate::live::Live;
use crate::log::commit_log::CommitLog;
use crate::log::damage::Damage;
use crate::options::Options;
use crate::state::disk_space::DiskSpace;
use crate::state::stall::Stall;
use crate::sync::lock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// The part of the store's state that all parts share.
pub(crate) struct StoreState {
    options: Arc<Options>,
    live: Arc<Live>,
    fs: Arc<dyn Fs>,
    log: Arc<CommitLog>,
    group_commit: Arc<GroupCommit<StoreError>>,
    closed: AtomicBool,
    /// Up to where everything is durable and readable; it lags behind `log.flushed()` while a round makes units
    /// readable.
    pub(crate) readable: AtomicI64,
    pub(crate) disk: DiskSpace,
    pub(crate) stall: Stall,
    /// Whether the failed fsync was noted for the next start.
    noted_unsure: AtomicBool,
    /// The damaged parts of the log that the start, the check after it, and readers found.
    damages: Mutex<Vec<Damage>>,
}

impl StoreState {
    pub(crate) fn new(
        options: &Arc<Options>,
        live: &Arc<Live>,
        fs: &Arc<dyn Fs>,
        log: &Arc<CommitLog>,
        group_commit: &Arc<GroupCommit<StoreError>>,
    ) -> Self {
        Self {
            options: Arc::clone(options),
            live: Arc::clone(live),
            fs: Arc::clone(fs),
            log: Arc::clone(log),
            group_commit: Arc::clone(group_commit),
            closed: AtomicBool::new(false),
            readable: AtomicI64::new(log.flushed()),
            disk: DiskSpace::default(),
            stall: Stall::default(),
            noted_unsure: AtomicBool::new(false),
            damages: Mutex::default(),
        }
    }

    /// Reports a damaged part of the log. The store continues: the other messages are readable.
    pub(crate) fn report_damage(&self, damage: Damage) {
        let mut damages = lock(&self.damages);
        if damages
            .iter()
            .any(|known| known.from <= damage.from && damage.until <= known.until)
        {
            return;
        }
        tracing::error!(damage = %damage.error, "messages are lost to readers");
        damages.push(damage);
    }

    /// What is wrong with the first damaged part of the log that was found, until retention has deleted its segment.
    pub(crate) fn damage(&self) -> Option<String> {
        let start = self.log.start();
        let damages = lock(&self.damages);
        let there = damages.iter().find(|damage| damage.until > start);
        there.map(|damage| damage.error.to_string())
    }

    /// Refuses all further puts. Only under the append lock, so that none is in progress.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed() {
            return Err(StoreError::Closed);
        }
        Ok(())
    }

    /// An error once the store is closed or has failed; reads continue.
    pub(crate) fn check_sound(&self) -> Result<(), StoreError> {
        self.check_open()?;
        self.log.failure.check()
    }

    /// An error if no message can be stored.
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        self.check_sound()?;
        self.check_space()
    }

    /// An error if no message can be stored for now.
    pub(crate) fn check_space(&self) -> Result<(), StoreError> {
        self.disk.check(&self.live, self.log.directory())?;
        self.stall.check()
    }

    /// Checks how full the disk is.
    pub(crate) fn check_disk_space(&self) -> Result<(), StoreError> {
        let directory = self.log.directory();
        let space = self.fs.space(directory).at("read the space of", directory)?;
        self.disk.set(space, &self.live);
        Ok(())
    }

    /// Turns the store read-only, answers all waiters, and leaves a note for the next start.
    pub(crate) fn fail(&self, error: &StoreError) {
        self.log.failure.set(error);
        self.record_unsure();
        self.group_commit.waiters.fail(error);
    }

    /// Answers all waiters if the error has turned the store read-only.
    pub(crate) fn fail_if_read_only(&self, error: &StoreError) {
        if self.log.failure.is_set() {
            self.fail(error);
        }
    }

    /// Records for the next start that something failed to become durable: what the system still holds of it must be
    /// rewritten.
    pub(crate) fn record_unsure(&self) {
        if !self.noted_unsure.swap(true, Ordering::AcqRel) {
            let options = &self.options;
            mark_unsure(
                self.fs.as_ref(),
                &options.root,
                options.queue_file_bytes,
                self.log.flushed(),
            );
        }
    }

    /// Refuses writes until there is space again, if the error means that there is none.
    pub(crate) fn refuse_if_full(&self, error: &StoreError) {
        if error.is_full() {
            tracing::error!(%error, "no space: writes are refused until there is some");
            self.disk.refuse();
        }
    }

    /// Handles a failure outside of the append path: a temporary one is logged, since it is tried again; any other
    /// turns the store read-only, because readers would miss units or keys that cannot be written.
    pub(crate) fn handle_failure(&self, what: &str, result: Result<(), StoreError>) {
        let Err(error) = result else { return };
        if error.is_passing() && !self.log.failure.is_set() {
            // Nothing is lost: the data is still in memory or in the log.
            tracing::warn!(%error, "{what}, will try again");
            return self.refuse_if_full(&error);
        }
        tracing::error!(%error, "{what}");
        self.fail(&error);
    }
}
