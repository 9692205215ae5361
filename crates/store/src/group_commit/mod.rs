//! The waiters for an fsync of the log, and the rounds that serve all of them at once (Apache `GroupCommitService`).
//!
//! Contract: a waiter for a position is answered exactly once. `Ok` only after an fsync that began after the position
//! was written returned without error. A failed fsync answers all waiters with the error.
//!
//! Nothing here knows the store: `tests/loom_group_commit.rs` checks all interleavings of this file, `leader.rs` and
//! `wakeup.rs` with a log of its own.

pub(crate) mod leader;

use crate::group_commit::leader::FlushLeader;
use crate::sync::wakeup::Wakeup;
use crate::sync::{Completion, Mutex, lock};
use pyrmq_remoting::meter::{Latency, Meter};
use std::fmt;
use std::time::{Duration, Instant};

/// Called once, when a position is durable or is known not to become so.
pub(crate) type BoxedCallback<E> = Box<dyn Completion<Result<(), E>>>;

/// The log that is fsynced.
pub(crate) trait Log {
    /// Why an fsync failed, or that there will be none.
    type Error: Clone;
    /// Position after what was written.
    fn appended(&self) -> i64;
    /// Position up to which everything is durable and readable: a sender that is answered may read at once.
    fn readable(&self) -> i64;
    /// The failure of a write or an fsync, from the moment at which it happened.
    fn check(&self) -> Result<(), Self::Error>;
    /// An error once there will be no more rounds.
    fn check_open(&self) -> Result<(), Self::Error>;
    /// Fsyncs everything that was written before this call, if that is necessary; returns how long the fsync took. Only
    /// the flush leader may call this.
    fn sync(&self) -> Result<Option<Duration>, Self::Error>;
}

/// The callbacks that wait for an fsync.
pub(crate) struct FlushWaiters<E> {
    list: Mutex<Vec<DurableWaiter<E>>>,
    /// How long they waited, whatever ended the wait.
    waits: Meter,
}

struct DurableWaiter<E> {
    position: i64,
    since: Instant,
    callback: BoxedCallback<E>,
}

impl<E> Default for FlushWaiters<E> {
    fn default() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            waits: Meter::default(),
        }
    }
}

impl<E> fmt::Debug for FlushWaiters<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FlushWaiters({})", lock(&self.list).len())
    }
}

impl<E: Clone> FlushWaiters<E> {
    /// Number of waiters, and the time that the first of them has waited.
    pub(crate) fn queue(&self) -> (usize, Duration) {
        let list = lock(&self.list);
        let oldest = list.first().map(|first| first.since.elapsed());
        (list.len(), oldest.unwrap_or_default())
    }

    fn is_empty(&self) -> bool {
        lock(&self.list).is_empty()
    }

    /// How long waiters waited, under this name.
    pub(crate) fn waits(&self, name: &'static str) -> Latency {
        self.waits.read(name)
    }

    fn extract(&self, which: impl Fn(&DurableWaiter<E>) -> bool) -> Vec<DurableWaiter<E>> {
        let extracted: Vec<_> = lock(&self.list).extract_if(.., |waiter| which(waiter)).collect();
        if !extracted.is_empty() {
            let now = Instant::now();
            // Those of an append batch began to wait together and are neighbours.
            for batch in extracted.chunk_by(|one, next| one.since == next.since) {
                let waited = batch.first().map(|first| now.duration_since(first.since));
                let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
                self.waits.add_all(waited.unwrap_or_default(), count);
            }
        }
        extracted
    }

    /// Answers waiters that have waited too long.
    pub(crate) fn expire(&self, longest: Duration, error: impl Fn(Duration) -> E) {
        for waiter in self.extract(|waiter| waiter.since.elapsed() >= longest) {
            waiter.callback.complete(Err(error(waiter.since.elapsed())));
        }
    }

    /// Answers all waiters.
    pub(crate) fn fail(&self, error: &E) {
        for waiter in self.extract(|_| true) {
            waiter.callback.complete(Err(error.clone()));
        }
    }
}

/// Waiters, the flush leader, and the wake-up of the flush thread.
#[derive(Debug)]
pub(crate) struct GroupCommit<E> {
    pub(crate) waiters: FlushWaiters<E>,
    pub(crate) leader: FlushLeader,
    pub(crate) wakeup: Wakeup,
}

impl<E> Default for GroupCommit<E> {
    fn default() -> Self {
        Self {
            waiters: FlushWaiters::default(),
            leader: FlushLeader::default(),
            wakeup: Wakeup::default(),
        }
    }
}

impl<E: Clone> GroupCommit<E> {
    /// Calls back once everything before `position` is durable.
    pub(crate) fn when_durable(&self, log: &impl Log<Error = E>, position: i64, callback: BoxedCallback<E>) {
        if position <= log.readable() {
            return callback.complete(Ok(()));
        }
        self.join(log, [(position, callback)], || self.wakeup.notify());
    }

    /// Calls back like [`GroupCommit::when_durable`], for waiters of an append batch, whose thread will call
    /// [`GroupCommit::commit_batch`]: the flush thread is not woken for them.
    pub(crate) fn when_durable_in_batch(
        &self,
        log: &impl Log<Error = E>,
        waiting: impl IntoIterator<Item = (i64, BoxedCallback<E>)>,
    ) {
        self.join(log, waiting, || {});
    }

    fn join(
        &self,
        log: &impl Log<Error = E>,
        waiting: impl IntoIterator<Item = (i64, BoxedCallback<E>)>,
        wake: impl FnOnce(),
    ) {
        let since = Instant::now();
        lock(&self.waiters.list).extend(waiting.into_iter().map(|(position, callback)| DurableWaiter {
            position,
            since,
            callback,
        }));
        // They are in the list before the flush thread wakes or the batch is committed, so the round that follows sees
        // them; a store that failed or closed has no more rounds.
        wake();
        if let Err(error) = log.check() {
            self.waiters.fail(&error);
        }
        if let Err(closed) = log.check_open() {
            self.answer(log);
            self.waiters.fail(&closed);
        }
    }

    /// Does a round, once this thread leads.
    pub(crate) fn flush_round(&self, log: &impl Log<Error = E>) -> Result<(), E> {
        let (callback, owed) = self.leader.wait(|| self.round(log));
        if owed {
            self.wakeup.notify();
        }
        callback
    }

    /// Has all waiters served: by a round of this thread if it can lead and the round will probably take less than
    /// `limit`. Without waiters, the flush thread is woken if readers wait for the fsync (`for_readers`).
    pub(crate) fn commit_batch(&self, log: &impl Log<Error = E>, limit: Duration, for_readers: bool) {
        if let Err(error) = log.check() {
            return self.waiters.fail(&error);
        }
        if log.appended() <= log.readable() {
            // Another thread's round ended before the waiters of this append batch were in the list.
            return self.answer(log);
        }
        let waits = !self.waiters.is_empty();
        if !waits && !for_readers {
            return;
        }
        if !waits || !self.leader.is_fast(limit) {
            return self.wakeup.notify();
        }
        // A failure is kept in the log, and all waiters have been answered. If another thread leads now, it wakes the
        // flush thread.
        if let Some((_, true)) = self.leader.try_lead(|| self.round(log)) {
            self.wakeup.notify();
        }
    }

    /// One fsync for everything that was appended before it, then the answers. Only the flush leader may call this.
    fn round(&self, log: &impl Log<Error = E>) -> Result<(), E> {
        match log.sync() {
            Ok(took) => {
                if let Some(took) = took {
                    self.leader.record(took);
                }
                self.answer(log);
                Ok(())
            }
            Err(error) => {
                self.waiters.fail(&error);
                Err(error)
            }
        }
    }

    fn answer(&self, log: &impl Log<Error = E>) {
        let readable = log.readable();
        for waiter in self.waiters.extract(|waiter| waiter.position <= readable) {
            waiter.callback.complete(Ok(()));
        }
    }
}
