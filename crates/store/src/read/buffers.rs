//! The memory for the answers to pulls.

use crate::sync::{Mutex, lock};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// Smaller answers are allocated separately: they are not worth a large buffer.
const MIN_POOLED: usize = 4 << 10;
/// Larger buffers are freed.
const MAX_POOLED: usize = 1 << 20;
/// Maximum bytes kept in the pool.
const POOL_BYTES: usize = 8 << 20;
/// Buffer sizes are multiples of this, so that answers of similar size share buffers.
const SIZE_STEP: usize = 16 << 10;

/// Buffers of sent answers, for reuse: they are allocated, need not be cleared, and are still in the processor's cache.
#[derive(Default)]
pub(crate) struct ReadBuffers {
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// A buffer that is large enough, but not so large that a slow peer with a small answer holds much memory.
    fn fitting(&mut self, size: usize) -> Vec<u8> {
        let fits = size..=size.next_multiple_of(SIZE_STEP) * 4;
        let Some(at) = self.buffers.iter().rposition(|bytes| fits.contains(&bytes.len())) else {
            return Vec::new();
        };
        let bytes = self.buffers.swap_remove(at);
        self.bytes -= bytes.len();
        bytes
    }
}

/// A buffer that returns to the pool when its last reference is dropped.
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    used: usize,
    owner: Arc<ReadBuffers>,
}

impl ReadBuffers {
    /// A buffer of `size` bytes with undefined content.
    pub(crate) fn acquire(self: &Arc<Self>, size: usize) -> ReadBuffer {
        let mut bytes = if (MIN_POOLED..=MAX_POOLED).contains(&size) {
            lock(&self.pool).fitting(size)
        } else {
            Vec::new()
        };
        if bytes.len() < size {
            let size = if size < MIN_POOLED {
                size
            } else {
                size.next_multiple_of(SIZE_STEP)
            };
            bytes = vec![0; size];
        }
        ReadBuffer {
            bytes,
            used: size,
            owner: Arc::clone(self),
        }
    }
}

impl fmt::Debug for ReadBuffers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Buffers({} bytes)", lock(&self.pool).bytes)
    }
}

impl ReadBuffer {
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.used).unwrap_or_default()
    }

    /// Returns what was read, as shareable bytes.
    pub(crate) fn freeze(mut self) -> Bytes {
        if self.bytes.len() < MIN_POOLED {
            self.bytes.truncate(self.used);
            return Bytes::from(std::mem::take(&mut self.bytes));
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if !(MIN_POOLED..=MAX_POOLED).contains(&bytes.len()) {
            return;
        }
        let mut pool = lock(&self.owner.pool);
        if pool.bytes + bytes.len() <= POOL_BYTES {
            pool.bytes += bytes.len();
            pool.buffers.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_its_answer_is_as_long_as_asked_for() {
        let buffers = Arc::new(ReadBuffers::default());
        let mut one = buffers.acquire(40_000);
        one.as_mut().fill(7);
        let at = one.as_ref().as_ptr();
        let answer = one.freeze();
        let part = answer.slice(10..20);
        drop(answer);
        assert_ne!(
            buffers.acquire(5000).as_ref().as_ptr(),
            at,
            "a part of it is still held"
        );
        drop(part);
        let again = buffers.acquire(33_000);
        assert_eq!((again.as_ref().as_ptr(), again.as_ref().len()), (at, 33_000));
        assert_eq!(again.freeze().len(), 33_000);
        drop(buffers.acquire(500_000));
        let little = buffers.acquire(5000);
        assert!(little.bytes.len() < 100_000, "no large buffer for a small answer");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Arc::new(ReadBuffers::default());
        let many: Vec<_> = (0..64).map(|_| buffers.acquire(MAX_POOLED).freeze()).collect();
        let large = buffers.acquire(MAX_POOLED + 1).freeze();
        let small = buffers.acquire(1).freeze();
        assert_eq!((large.len(), small.len()), (MAX_POOLED + 1, 1));
        drop((many, large, small));
        assert_eq!(lock(&buffers.pool).bytes, POOL_BYTES);
        let pool = lock(&buffers.pool).buffers.len();
        assert_eq!(pool, POOL_BYTES / MAX_POOLED);
    }
}
