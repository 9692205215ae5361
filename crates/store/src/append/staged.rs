//! The buffers of puts that wait to be written, and the pool that they come from.

use crate::append::buffer::AppendBuffer;
use crate::message::{OnDurable, OnStored};
use crate::sync::lock;
use std::sync::Mutex;

/// Most sets of buffers that are kept for later batches. More than this many threads rarely stage at once.
const MAX_KEPT: usize = 16;

/// Puts that wait to be written, and the buffers that they lie in.
#[derive(Default)]
pub(crate) struct StagedPuts {
    pub(crate) append_buffer: AppendBuffer,
    /// The callback of each queue append in the buffer.
    pub(super) done: Vec<Box<dyn OnStored>>,
    /// Callbacks that wait for the disk.
    pub(super) waiters: Vec<(i64, OnDurable)>,
}

/// Buffers of puts that were written. The next put of any connection takes the ones used last, which are still in the
/// processor's cache. So the memory depends on how many threads stage at once, not on how many connections there are.
#[derive(Default)]
pub(crate) struct StagedPool {
    #[expect(
        clippy::vec_box,
        reason = "a set is handed on by its pointer, twice for each batch"
    )]
    free: Mutex<Vec<Box<StagedPuts>>>,
}

impl StagedPool {
    pub(crate) fn take(&self) -> Box<StagedPuts> {
        lock(&self.free).pop().unwrap_or_default()
    }

    /// Keeps buffers for the next put, up to [`MAX_KEPT`] sets.
    pub(crate) fn give_back(&self, mut staged: Box<StagedPuts>) {
        staged.append_buffer.clear();
        staged.done.clear();
        staged.waiters.clear();
        let mut free = lock(&self.free);
        if free.len() < MAX_KEPT {
            free.push(staged);
        }
    }
}
