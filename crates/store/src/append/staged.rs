//! The buffers of puts that wait to be written, and the pool of such buffers.

use crate::append::buffer::AppendBuffer;
use crate::message::{OnDurable, OnStored};
use crate::sync::lock;
use std::sync::Mutex;

/// Maximum number of sets of buffers in the pool. More threads than this rarely stage at once.
const MAX_KEPT: usize = 16;

/// Puts that wait to be written, and their buffers.
#[derive(Default)]
pub(crate) struct StagedPuts {
    pub(crate) append_buffer: AppendBuffer,
    /// The callback of each queue append in the buffer.
    pub(super) done: Vec<Box<OnStored>>,
    /// Callbacks that wait for the disk.
    pub(super) waiters: Vec<(i64, OnDurable)>,
}

/// Buffers of written puts, for reuse by any connection. The last used ones are taken first, because they are still in
/// the processor's cache. So the memory depends on how many threads stage at once, not on the number of connections.
#[derive(Default)]
pub(crate) struct StagedPool {
    #[expect(
        clippy::vec_box,
        reason = "a set is passed on by its pointer, twice for each batch"
    )]
    free: Mutex<Vec<Box<StagedPuts>>>,
}

impl StagedPool {
    /// Takes the buffers that were used last, or makes new ones.
    pub(crate) fn acquire(&self) -> Box<StagedPuts> {
        lock(&self.free).pop().unwrap_or_default()
    }

    /// Keeps buffers for the next put, up to [`MAX_KEPT`] sets.
    pub(crate) fn release(&self, mut staged: Box<StagedPuts>) {
        staged.append_buffer.clear();
        staged.done.clear();
        staged.waiters.clear();
        let mut free = lock(&self.free);
        if free.len() < MAX_KEPT {
            free.push(staged);
        }
    }
}
