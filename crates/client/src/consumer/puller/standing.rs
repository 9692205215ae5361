//! How a consumer stands: its queues, and what it has received and done.

use crate::consumer::process_queue::{ProcessQueue, QueueKey, QueueState};
use crate::consumer::puller::Puller;
use crate::consumer::rates::Rates;
use std::sync::Arc;

impl Puller {
    /// The assigned queues with the position of each: the offset of the next message that a poll hands out.
    pub fn positions(&self) -> Vec<(Arc<QueueKey>, i64)> {
        let state = self.shared.state();
        let queues = state.queues.values();
        queues.map(|queue| (queue.key.clone(), queue.delivered)).collect()
    }

    /// What was received and done lately.
    pub fn rates(&self) -> Rates {
        self.shared.state().counted.of_all()
    }

    /// How each assigned queue stands.
    pub fn queue_states(&self) -> Vec<QueueState> {
        let state = self.shared.state();
        let queues = state.queues.values();
        queues.map(ProcessQueue::state).collect()
    }
}
