//! The group commit under every interleaving of a few threads (`make loom`): every waiter is answered exactly once,
//! with `Ok` only after an fsync that began after its bytes were written; none is forgotten (a model without progress
//! is a failure); a failure or a stop answers all.
//!
//! The files are the store's own, over loom's locks and atomics: this crate's `sync` replaces the store's.
#![cfg(pyrmq_loom)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on says so; the files have more than is used here"
)]

#[path = "../src/group_commit/mod.rs"]
mod group_commit;
#[path = "../../remoting/src/sync/wakeup.rs"]
mod wakeup;

mod sync {
    pub(crate) use crate::wakeup;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use pyrmq_remoting::sync::Completion;
    use std::time::Duration;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }

    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }

    /// Time never passes: a thread that is not woken sleeps for ever, and loom reports it.
    pub(crate) fn wait_while<'g, T>(
        changed: &Condvar,
        mut guard: MutexGuard<'g, T>,
        _longest: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'g, T> {
        while condition(&mut guard) {
            guard = changed.wait(guard).unwrap();
        }
        guard
    }
}

use group_commit::{BoxedCallback, GroupCommit, Log};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;
use sync::{AtomicBool, AtomicI64, Condvar, Mutex, Ordering, lock};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    Failed,
    Closed,
    Late,
}

/// A log whose disk may fail. It keeps the store's order: a failure is recorded before any waiter learns of it.
struct Disk {
    group_commit: GroupCommit<Refused>,
    /// The written bytes, under a lock like the store's append lock.
    written: Mutex<i64>,
    appended: AtomicI64,
    durable: AtomicI64,
    readable: AtomicI64,
    fails: bool,
    failed: AtomicBool,
    closed: AtomicBool,
}

impl Log for Disk {
    type Error = Refused;

    fn appended(&self) -> i64 {
        self.appended.load(Ordering::Acquire)
    }

    fn readable(&self) -> i64 {
        self.readable.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), Refused> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Refused::Failed);
        }
        Ok(())
    }

    fn check_open(&self) -> Result<(), Refused> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Refused::Closed);
        }
        Ok(())
    }

    fn sync(&self) -> Result<Option<Duration>, Refused> {
        let target = *lock(&self.written);
        if target <= self.readable() {
            return Ok(None);
        }
        self.check()?;
        if self.fails {
            self.failed.store(true, Ordering::Release);
            return Err(Refused::Failed);
        }
        self.durable.store(target, Ordering::Release);
        self.readable.store(target, Ordering::Release);
        Ok(Some(Duration::ZERO))
    }
}

/// A sender's result.
#[derive(Default)]
struct Answers {
    results: Mutex<Vec<Result<(), Refused>>>,
    changed: Condvar,
}

impl Answers {
    fn wait(&self, count: usize) {
        let mut results = lock(&self.results);
        while results.len() < count {
            results = self.changed.wait(results).unwrap();
        }
    }

    fn take(&self) -> Vec<Result<(), Refused>> {
        std::mem::take(&mut *lock(&self.results))
    }
}

/// Longer than anything measured here.
const ALWAYS: Duration = Duration::from_secs(3600);

impl Disk {
    fn new(fails: bool) -> Arc<Self> {
        Arc::new(Self {
            group_commit: GroupCommit::default(),
            written: Mutex::new(0),
            appended: AtomicI64::new(0),
            durable: AtomicI64::new(0),
            readable: AtomicI64::new(0),
            fails,
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    /// Writes one more byte and returns a waiter for its durability.
    fn write(self: &Arc<Self>, answers: &Arc<Answers>) -> (i64, BoxedCallback<Refused>) {
        let position = {
            let mut written = lock(&self.written);
            *written += 1;
            self.appended.store(*written, Ordering::Release);
            *written
        };
        let (disk, answers) = (Arc::clone(self), Arc::clone(answers));
        let done = Box::new(move |result: Result<(), Refused>| {
            assert!(
                result.is_err() || disk.durable.load(Ordering::Acquire) >= position,
                "not durable"
            );
            lock(&answers.results).push(result);
            answers.changed.notify_all();
        });
        (position, done)
    }

    fn send(self: &Arc<Self>, answers: &Arc<Answers>) {
        let (position, done) = self.write(answers);
        self.group_commit.when_durable(self.as_ref(), position, done);
    }

    /// Writes in an append batch, and waits as `send` does.
    fn put(self: &Arc<Self>, answers: &Arc<Answers>) {
        let waiting = self.write(answers);
        self.group_commit.when_durable_in_batch(self.as_ref(), [waiting]);
    }

    fn commit_batch(&self) {
        self.group_commit.commit_batch(self, ALWAYS, true);
    }

    /// The flush thread.
    fn flusher(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let disk = Arc::clone(self);
        thread::spawn(move || {
            while disk.group_commit.wakeup.sleep(ALWAYS) {
                if disk.group_commit.flush_round(disk.as_ref()).is_err() {
                    return;
                }
            }
        })
    }

    /// Stops in the order of the store's `close`.
    fn close(&self, flusher: thread::JoinHandle<()>) {
        {
            let _no_put_is_under_way = lock(&self.written);
            self.closed.store(true, Ordering::Release);
        }
        self.group_commit.wakeup.stop();
        flusher.join().unwrap();
        drop(self.group_commit.flush_round(self));
        self.group_commit.waiters.fail(&Refused::Closed);
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // More preemptions than this find nothing new and take hours.
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(run);
}

#[test]
fn two_senders_and_the_flush_thread() {
    model(|| {
        let (disk, answers) = (Disk::new(false), Arc::new(Answers::default()));
        let flusher = disk.flusher();
        let other = {
            let (disk, answers) = (Arc::clone(&disk), Arc::clone(&answers));
            thread::spawn(move || disk.send(&answers))
        };
        disk.send(&answers);
        answers.wait(2);
        other.join().unwrap();
        disk.close(flusher);
        assert_eq!(answers.take(), [Ok(()), Ok(())]);
    });
}

#[test]
fn append_batches_that_lead_and_append_batches_that_come_late() {
    model(|| {
        let (disk, answers) = (Disk::new(false), Arc::new(Answers::default()));
        let flusher = disk.flusher();
        let other = {
            let (disk, answers) = (Arc::clone(&disk), Arc::clone(&answers));
            thread::spawn(move || {
                disk.put(&answers);
                disk.commit_batch();
            })
        };
        disk.put(&answers);
        disk.commit_batch();
        answers.wait(2);
        other.join().unwrap();
        disk.close(flusher);
        assert_eq!(answers.take(), [Ok(()), Ok(())]);
    });
}

#[test]
fn a_failed_fsync_answers_all() {
    model(|| {
        let (disk, answers) = (Disk::new(true), Arc::new(Answers::default()));
        let flusher = disk.flusher();
        let other = {
            let (disk, answers) = (Arc::clone(&disk), Arc::clone(&answers));
            thread::spawn(move || disk.send(&answers))
        };
        disk.put(&answers);
        disk.commit_batch();
        answers.wait(2);
        other.join().unwrap();
        disk.close(flusher);
        assert_eq!(answers.take(), vec![Err(Refused::Failed); 2]);
    });
}

#[test]
fn a_stop_answers_all() {
    model(|| {
        let (disk, answers) = (Disk::new(false), Arc::new(Answers::default()));
        let flusher = disk.flusher();
        let other = {
            let (disk, answers) = (Arc::clone(&disk), Arc::clone(&answers));
            thread::spawn(move || disk.send(&answers))
        };
        disk.close(flusher);
        other.join().unwrap();
        let results = answers.take();
        assert!(
            matches!(results[..], [Ok(()) | Err(Refused::Closed)]),
            "{results:?}"
        );
    });
}

#[test]
fn a_timeout_and_a_round_do_not_both_answer() {
    model(|| {
        let (disk, answers) = (Disk::new(false), Arc::new(Answers::default()));
        let timer = {
            let disk = Arc::clone(&disk);
            thread::spawn(move || {
                disk.group_commit
                    .waiters
                    .expire(Duration::ZERO, |_| Refused::Late)
            })
        };
        disk.put(&answers);
        disk.commit_batch();
        timer.join().unwrap();
        let results = answers.take();
        assert!(
            matches!(results[..], [Ok(()) | Err(Refused::Late)]),
            "{results:?}"
        );
    });
}
