//! Encoded routes, kept within a bound on their bytes: the answers that were not asked for since the last round go
//! first.

use super::published::{Cell, Seats, lock};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// What all cached answers together may take.
const LIMIT: usize = 64 * 1024 * 1024;
/// What an answer costs beside its bytes.
const OVERHEAD: usize = 128;

/// An encoded answer and what it was made of.
#[derive(Debug)]
pub(super) struct Encoded {
    body: Bytes,
    cell: u64,
    epoch: u64,
    /// No seat has changed since the world stood at this.
    world: AtomicU64,
    seats: Seats,
    used: AtomicBool,
    _charge: Charge,
}

impl Encoded {
    pub(super) fn new(body: Bytes, cell: u64, epoch: u64, world: u64, seats: Seats, charge: Charge) -> Self {
        Self {
            body,
            cell,
            epoch,
            world: AtomicU64::new(world),
            seats,
            used: AtomicBool::new(false),
            _charge: charge,
        }
    }

    /// True while it is what would be encoded now.
    pub(super) fn holds(&self, cell: u64, epoch: u64, world: u64) -> bool {
        if (self.cell, self.epoch) != (cell, epoch) {
            return false;
        }
        if self.world.load(Ordering::Acquire) == world {
            return true;
        }
        let same = self
            .seats
            .iter()
            .all(|(seat, version)| seat.version.load(Ordering::Acquire) == *version);
        if same {
            self.world.store(world, Ordering::Release);
        }
        same
    }

    pub(super) fn body(&self) -> Bytes {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.body.clone()
    }
}

/// Bytes that a cached answer holds; given back when it goes, however it goes.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The bound on all of them.
#[derive(Debug)]
pub(super) struct Cache {
    limit: usize,
    total: Arc<AtomicUsize>,
    // Guards in which order answers were cached.
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<(Weak<Cell>, usize)>,
    /// At this length entries of topics that went are taken out.
    sweep_at: usize,
}

impl Queue {
    fn push(&mut self, cell: &Arc<Cell>, form: usize) {
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|(cell, _)| cell.strong_count() > 0);
            self.sweep_at = (self.entries.len() * 2).max(1024);
        }
        self.entries.push_back((Arc::downgrade(cell), form));
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            total: Arc::default(),
            queue: Mutex::default(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Keeps an answer with its cell. `make` gets what accounts for it.
    pub(super) fn store(
        &self,
        cell: &Arc<Cell>,
        form: usize,
        size: usize,
        make: impl FnOnce(Charge) -> Encoded,
    ) {
        let bytes = size + OVERHEAD;
        self.total.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge {
            bytes,
            total: self.total.clone(),
        };
        let before = cell.encoded(form).replace(make(charge));
        if before.is_none() {
            lock(&self.queue).push(cell, form);
        }
        drop(before);
        if self.bytes() > self.limit {
            self.shrink();
        }
    }

    fn shrink(&self) {
        let queue = &mut lock(&self.queue).entries;
        // Each answer gets one more chance; after two rounds nothing can be left.
        let mut chances = queue.len().saturating_mul(2);
        while self.bytes() > self.limit && chances > 0 {
            chances -= 1;
            let Some((weak, form)) = queue.pop_front() else {
                return;
            };
            let Some(cell) = weak.upgrade() else {
                continue;
            };
            let mut encoded = cell.encoded(form);
            if encoded
                .as_ref()
                .is_some_and(|encoded| encoded.used.swap(false, Ordering::Relaxed))
            {
                queue.push_back((weak, form));
            } else {
                *encoded = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(cache: &Cache, cell: &Arc<Cell>, size: usize) {
        cache.store(cell, 0, size, |charge| {
            Encoded::new(Bytes::from(vec![0; size]), 0, 0, 0, Box::default(), charge)
        });
    }

    #[test]
    fn cached_answers_stay_within_the_bound_and_asked_ones_stay_longest() {
        let cache = Cache::new(10_000);
        let cells: Vec<Arc<Cell>> = (0..20).map(|_| Arc::default()).collect();
        store(&cache, &cells[0], 1000);
        for cell in &cells[1..] {
            drop(cells[0].encoded(0).as_ref().map(Encoded::body));
            store(&cache, cell, 1000);
            assert!(cache.bytes() <= 10_000, "{}", cache.bytes());
        }
        assert!(cells[0].encoded(0).is_some(), "it was asked for all the time");
        assert!(cells[1].encoded(0).is_none());
        assert!(cells[19].encoded(0).is_some());
        drop(cells);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn an_answer_that_replaces_another_is_counted_once() {
        let cache = Cache::new(10_000);
        let cell: Arc<Cell> = Arc::default();
        for _ in 0..100 {
            store(&cache, &cell, 500);
        }
        assert_eq!(cache.bytes(), 500 + OVERHEAD);
        assert_eq!(lock(&cache.queue).entries.len(), 1);
    }
}
