//! Messages that arrived together and wait to be handed out.

use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::receipt::Receipt;
use crate::consumer::process_queue::QueueKey;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages that arrived together.
#[derive(Debug)]
pub(crate) struct PopBatch {
    pub(crate) messages: VecDeque<Popped>,
    pub(crate) invisible: Duration,
    pub(crate) arrived: Instant,
}

impl PopBatch {
    pub(super) fn left(&self, now: Instant) -> Duration {
        (self.arrived + self.invisible).saturating_duration_since(now)
    }

    /// Splits off the messages of a queue, which wait for those that a call gets.
    pub(super) fn split_off(&mut self, queue: &QueueKey, taken: &[Popped]) -> Option<Successors> {
        let is_own = |message: &Popped| *message.chunk.queue == *queue;
        let (own, others): (VecDeque<_>, _) = self.messages.drain(..).partition(is_own);
        self.messages = others;
        if own.is_empty() {
            return None;
        }
        let handed_out = taken.iter().filter(|message| is_own(message));
        Some(Successors {
            waits_for: handed_out.map(|message| message.receipt.clone()).collect(),
            batch: Self {
                messages: own,
                ..*self
            },
        })
    }
}

/// Messages of an ordered queue whose predecessors a call got. They are handed out once those are acknowledged. They
/// are not given back meanwhile, because giving back counts as a delivery in an ordered group.
#[derive(Debug)]
pub(super) struct Successors {
    pub(super) waits_for: Vec<Arc<Receipt>>,
    pub(super) batch: PopBatch,
}
