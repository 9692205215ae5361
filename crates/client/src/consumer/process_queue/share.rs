//! What is fetched ahead, shared evenly by the queues.

/// Bytes asked for at most in one pull, which is what brokers of ours give at most.
const LARGEST_ANSWER: usize = 4 << 20;

/// How much may be fetched ahead for one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) bytes: usize,
}

impl Share {
    /// An even part of what may be fetched ahead for all queues: however much one of them has, the others keep theirs.
    pub(crate) fn new(ahead_bytes: usize, queues: usize) -> Self {
        Self {
            bytes: ahead_bytes / queues.max(1),
        }
    }

    /// Bytes to ask for at once: half the share, so that the next answer comes while the last is handed out.
    pub(crate) fn answer_bytes(self) -> usize {
        (self.bytes / 2).clamp(1, LARGEST_ANSWER)
    }
}
