//! Whether a read may wait for the disk.

use crate::fs::File;
use crate::sync::{MutexGuard, lock, try_lock};
use std::cell::Cell;
use std::io;
use std::sync::Mutex;

/// Whether a reader may wait for the disk, and whether it would have had to.
#[derive(Debug)]
pub(crate) struct ReadMode {
    waits: bool,
    missed: Cell<bool>,
}

impl ReadMode {
    /// Reads from the disk if necessary.
    pub(crate) fn waiting() -> Self {
        Self {
            waits: true,
            missed: Cell::new(false),
        }
    }

    /// Reads only from memory.
    pub(crate) fn cached() -> Self {
        Self {
            waits: false,
            missed: Cell::new(false),
        }
    }

    /// Whether something was not in memory: what was read since then is incomplete.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed.get()
    }

    /// Whether the reader may wait. If not, this records a miss.
    pub(crate) fn may_wait(&self) -> bool {
        self.missed.set(self.missed.get() || !self.waits);
        self.waits
    }

    /// Takes a lock whose holders may wait for the disk; `None` if it is taken and the reader may not wait.
    pub(crate) fn take<'m, T>(&self, mutex: &'m Mutex<T>) -> Option<MutexGuard<'m, T>> {
        try_lock(mutex).or_else(|| self.may_wait().then(|| lock(mutex)))
    }

    /// Reads up to `buffer.len()` bytes; `None` if they are not in memory and the reader may not wait.
    pub(crate) fn read_at(
        &self,
        file: &dyn File,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        if self.waits {
            return file.read_at(buffer, offset).map(Some);
        }
        let got = file.read_cached(buffer, offset)?;
        if got.is_none() {
            self.missed.set(true);
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_taken_is_a_miss_for_a_reader_that_may_not_wait() {
        let (mutex, mode) = (Mutex::new(7), ReadMode::cached());
        assert_eq!(mode.take(&mutex).map(|guard| *guard), Some(7));
        assert!(!mode.has_missed());
        let held = lock(&mutex);
        assert!(mode.take(&mutex).is_none() && mode.has_missed());
        drop(held);
    }
}
