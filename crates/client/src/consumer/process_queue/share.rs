//! The limit on fetched messages, shared evenly by the queues.

use crate::consumer::process_queue::chunk::HEAD_BYTES;

/// Maximum number of bytes that one pull requests, which is also the maximum that our brokers give.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Of the memory of an answer at least this many parts are its messages, and one is what is kept about them: 16 bytes
/// for each, of which the shortest has some 120.
const MESSAGE_PARTS: usize = 7;

/// How much may be fetched ahead for one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) bytes: usize,
    /// `None`: any number.
    pub(crate) messages: Option<usize>,
}

impl Share {
    /// An equal share of what may be fetched ahead for all queues: a queue with many messages does not reduce the
    /// others' shares.
    pub(crate) fn new(ahead_bytes: usize, ahead_messages: Option<usize>, queues: usize) -> Self {
        Self {
            bytes: ahead_bytes / queues.max(1),
            messages: ahead_messages.map(|messages| (messages / queues.max(1)).max(1)),
        }
    }

    /// Memory that one answer may need: half the share, so that the next one comes while the last is handed out.
    pub(crate) fn answer_memory(self) -> usize {
        let most = MAX_ANSWER_BYTES / MESSAGE_PARTS * (MESSAGE_PARTS + 1) + HEAD_BYTES;
        (self.bytes / 2).clamp(1, most)
    }

    /// Bytes of messages to request at once. What an answer keeps besides is left free, or of a tiny share a quarter.
    pub(crate) fn answer_bytes(self) -> usize {
        let memory = self.answer_memory();
        let memory = memory - HEAD_BYTES.min(memory / 4);
        (memory - memory / (MESSAGE_PARTS + 1)).clamp(1, MAX_ANSWER_BYTES)
    }

    /// Messages to request at once: half the share, at most `batch`.
    pub(crate) fn answer_messages(self, batch: i32) -> i32 {
        let half = self.half_of_messages();
        half.and_then(|half| i32::try_from(half).ok())
            .map_or(batch, |half| batch.min(half))
    }

    /// Whether another answer fits beside this many messages.
    pub(crate) fn has_room_beside(self, messages: usize) -> bool {
        let (share, half) = (self.messages, self.half_of_messages());
        share
            .zip(half)
            .is_none_or(|(share, half)| messages + half <= share)
    }

    fn half_of_messages(self) -> Option<usize> {
        self.messages.map(|messages| (messages / 2).max(1))
    }
}
