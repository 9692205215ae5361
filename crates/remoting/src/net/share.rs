//! The memory that a server's answers may take while they wait for peers that do not read, and that halves of large
//! frames may take while their peers do not write.
//!
//! A connection may keep as much as all of them together leave free, and no more than its own bound: one slow reader gets all
//! of that, `n` of them get the `n + 1`th part of the total each, and whoever comes next still finds room (the dynamic
//! threshold of switches with shared memory, Choudhury and Hahne 1998). Below a floor nobody is stopped, so that all go on.
//!
//! Connections tell in steps, so that small answers never touch what is shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection tells when it differs by so many bytes from what it told last.
const STEP: usize = 64 * 1024;
/// Each connection may keep this.
pub(super) const FLOOR: usize = 128 * 1024;

/// What a server's connections share.
#[derive(Debug)]
pub(super) struct Room {
    total: usize,
    taken: AtomicUsize,
}

impl Room {
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            taken: AtomicUsize::new(0),
        })
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// One connection's part; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shared: Arc<Room>,
    told: usize,
}

impl Share {
    pub(super) fn of(shared: &Arc<Room>) -> Self {
        Self {
            shared: Arc::clone(shared),
            told: 0,
        }
    }

    /// Takes in that `own` bytes wait now.
    pub(super) fn tell(&mut self, own: usize) {
        if own.abs_diff(self.told) < STEP && own != 0 {
            return;
        }
        if own > self.told {
            self.shared.taken.fetch_add(own - self.told, Ordering::Relaxed);
        } else if own < self.told {
            self.shared.taken.fetch_sub(self.told - own, Ordering::Relaxed);
        }
        self.told = own;
    }

    /// How many bytes may wait before nothing more is read, where the connection's own bound is `most`.
    pub(super) fn allowed(&self, most: usize) -> usize {
        let free = self.shared.total.saturating_sub(self.shared.taken());
        most.min(free.max(FLOOR))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.tell(0);
    }
}
