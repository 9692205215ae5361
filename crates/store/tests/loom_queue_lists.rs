//! The lists of queues to be written and to be fsynced under every interleaving of a few threads (`make loom`): a unit
//! that is in a queue's memory when a round begins is written, or durable, when the round ends, and no queue with
//! unwritten units is forgotten.
//!
//! The file is the store's own, over loom's locks and atomics: this crate's `sync` replaces the store's.
#![cfg(pyrmq_loom)]
#![allow(clippy::unwrap_used, dead_code, reason = "a test that cannot go on says so")]

#[path = "../src/queue/wait_list.rs"]
mod wait_list;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

use loom::sync::atomic::AtomicUsize;
use loom::thread;
use std::sync::Arc;
use sync::{Mutex, Ordering, lock};
use wait_list::{InList, WaitList};

/// A consume queue with the locks of the store's: units in memory, and a file.
struct Queue {
    in_unwritten: InList,
    in_unsynced: InList,
    pushed: Mutex<usize>,
    /// Held while the file is written.
    writing: Mutex<()>,
    is_dirty: Mutex<bool>,
    /// Number of units in the file, and how many of them are durable. The system reads and writes these without a lock
    /// of ours.
    written: AtomicUsize,
    durable: AtomicUsize,
}

struct Queues {
    queue: Arc<Queue>,
    unwritten: WaitList<Queue>,
    unsynced: WaitList<Queue>,
    /// The backlog, which counts each unit here.
    counted: Mutex<usize>,
    /// Held by the thread that fsyncs.
    syncs: Mutex<()>,
    /// Held by the thread that writes.
    rounds: Mutex<()>,
}

impl Queue {
    fn write_out(&self) {
        let _writing = lock(&self.writing);
        let pushed = *lock(&self.pushed);
        if pushed > self.written.load(Ordering::SeqCst) {
            self.written.store(pushed, Ordering::SeqCst);
            *lock(&self.is_dirty) = true;
        }
    }

    fn sync(&self) {
        let is_dirty = std::mem::take(&mut *lock(&self.is_dirty));
        if is_dirty {
            let written = self.written.load(Ordering::SeqCst);
            self.durable.store(written, Ordering::SeqCst);
        }
    }
}

impl Queues {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::new(Queue {
                in_unwritten: InList::default(),
                in_unsynced: InList::default(),
                pushed: Mutex::new(0),
                writing: Mutex::new(()),
                is_dirty: Mutex::new(false),
                written: AtomicUsize::new(0),
                durable: AtomicUsize::new(0),
            }),
            unwritten: WaitList::default(),
            unsynced: WaitList::default(),
            counted: Mutex::new(0),
            syncs: Mutex::new(()),
            rounds: Mutex::new(()),
        })
    }

    fn put(&self) {
        *lock(&self.queue.pushed) += 1;
        self.unwritten.add(&self.queue, &self.queue.in_unwritten);
        *lock(&self.counted) += 1;
    }

    /// Writes, and checks that this covers the units that the backlog counted before.
    fn write_listed(&self) {
        let counted = *lock(&self.counted);
        for queue in self.unwritten.take() {
            queue.in_unwritten.leave();
            queue.write_out();
            self.unsynced.add(&queue, &queue.in_unsynced);
        }
        let written = self.queue.written.load(Ordering::SeqCst);
        assert!(written >= counted, "a unit is taken for written");
    }

    fn write_round(&self) {
        let _one = lock(&self.rounds);
        self.write_listed();
    }

    /// Writes and fsyncs, and checks that this covers the units of as many puts as were over before.
    fn sync_round(&self, before: usize) {
        let _one = lock(&self.syncs);
        let queues = {
            let _one = lock(&self.rounds);
            self.write_listed();
            let queues = self.unsynced.take();
            for queue in &queues {
                queue.in_unsynced.leave();
            }
            queues
        };
        for queue in queues {
            queue.sync();
        }
        let durable = self.queue.durable.load(Ordering::SeqCst);
        assert!(durable >= before, "a unit is not durable");
    }

    /// After all threads: one more round leaves nothing behind.
    fn check_end(&self, puts: usize) {
        self.sync_round(puts);
        let load = |units: &AtomicUsize| units.load(Ordering::SeqCst);
        assert_eq!(
            (load(&self.queue.written), load(&self.queue.durable)),
            (puts, puts)
        );
        assert!(self.unwritten.waiting().is_empty());
        assert!(self.unsynced.waiting().is_empty());
    }
}

#[test]
fn no_unit_of_two_putters_is_forgotten_by_a_round_of_writing() {
    loom::model(|| {
        let queues = Queues::new();
        let putters: Vec<_> = (0..2)
            .map(|_| {
                let queues = Arc::clone(&queues);
                thread::spawn(move || queues.put())
            })
            .collect();
        queues.write_round();
        for putter in putters {
            putter.join().unwrap();
        }
        queues.check_end(2);
    });
}

#[test]
fn a_round_of_fsyncs_beside_a_putting_thread_covers_what_was_put_before() {
    loom::model(|| {
        let queues = Queues::new();
        queues.put();
        let putter = {
            let queues = Arc::clone(&queues);
            thread::spawn(move || queues.put())
        };
        queues.sync_round(1);
        putter.join().unwrap();
        queues.check_end(2);
    });
}

#[test]
fn a_round_of_fsyncs_beside_one_of_writing_covers_all_that_was_put() {
    loom::model(|| {
        let queues = Queues::new();
        queues.put();
        let writer = {
            let queues = Arc::clone(&queues);
            thread::spawn(move || {
                queues.write_round();
                queues.put();
            })
        };
        queues.sync_round(1);
        writer.join().unwrap();
        queues.check_end(2);
    });
}
