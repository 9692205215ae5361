//! Calls of a disk that wait until a test releases them.

use crate::lock::lock;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// Calls of one kind that wait.
#[derive(Debug, Default)]
pub(crate) struct Hangs {
    /// Calls with a path that contains (or, if it is a directory, ends with) one of these wait.
    parts: Mutex<Vec<String>>,
    /// Number of calls that wait.
    waiting: AtomicUsize,
    released: Condvar,
}

impl Hangs {
    pub(crate) fn set(&self, path_part: &str, hangs: bool) {
        let mut parts = lock(&self.parts);
        parts.retain(|part| part != path_part);
        if hangs {
            parts.push(path_part.to_owned());
        }
        self.released.notify_all();
    }

    /// Whether a call would wait.
    pub(crate) fn hangs(&self, path: &Path) -> bool {
        let text = path.to_string_lossy();
        lock(&self.parts).iter().any(|part| text.contains(part))
    }

    pub(crate) fn wait(&self, path: &Path) {
        let text = path.to_string_lossy();
        self.wait_if(|part| text.contains(part));
    }

    pub(crate) fn wait_if(&self, is_meant: impl Fn(&str) -> bool) {
        let is_hanging = |parts: &mut Vec<String>| parts.iter().any(|part| is_meant(part));
        let mut parts = lock(&self.parts);
        if is_hanging(&mut parts) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            drop(self.released.wait_while(parts, is_hanging));
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns how many calls wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
