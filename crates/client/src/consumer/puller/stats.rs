//! A consumer's positions and rates.

use crate::consumer::process_queue::{ProcessQueue, QueueKey, QueueState};
use crate::consumer::puller::Puller;
use crate::consumer::rates::Rates;
use pyrmq_remoting::sync::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Puller {
    /// The assigned queues with the position of each: the offset of the next message that a poll hands out.
    pub fn positions(&self) -> Vec<(Arc<QueueKey>, i64)> {
        let state = self.shared.state();
        let queues = state.queues.values();
        queues.map(|queue| (queue.key.clone(), queue.delivered)).collect()
    }

    /// What was received and done lately.
    pub fn rates(&self) -> Rates {
        lock(&self.shared.counted).of_all()
    }

    /// How often the invisible times of popped messages were renewed.
    pub fn renewed(&self) -> u64 {
        let pops = self.shared.pops.as_ref();
        pops.map_or(0, |pops| pops.shared.renewed.load(Ordering::Relaxed))
    }

    /// The state of each assigned queue, including those that are popped.
    pub fn queue_states(&self) -> Vec<QueueState> {
        // Before the lock: pops are never locked under it.
        let popped = self.shared.pops.as_ref().map(|pops| pops.shared.target_states());
        let popped = popped.into_iter().flatten().map(|(target, _)| target);
        let state = self.shared.state();
        let queues = state.queues.values();
        queues.map(ProcessQueue::state).chain(popped).collect()
    }
}
