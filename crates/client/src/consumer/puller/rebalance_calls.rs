//! The rebalance events of the thread that polls, and its answers to them.

use crate::consumer::process_queue::QueueKey;
use crate::consumer::puller::Puller;
use crate::consumer::rebalance::events::{RebalanceEvent, RebalanceKind};
use crate::error::ClientError;

impl Puller {
    /// Whether an event waits, before which polls hand out nothing.
    pub fn has_rebalance_event(&self) -> bool {
        self.shared.state().has_events()
    }

    /// The next event for the thread that polls; `all_done`: what earlier polls handed out is done.
    pub fn next_rebalance_event(&self, all_done: bool) -> Option<RebalanceEvent> {
        self.shared.state().next_event(all_done)
    }

    /// Ends an event, whose callback has ended; `has_returned`: without an error. Then revoked queues are given back
    /// after a commit of what is done, and assigned ones hand out their messages. After an error revoked queues are
    /// given back without a commit, and assigned ones are announced again.
    pub async fn end_rebalance_event(
        &self,
        kind: RebalanceKind,
        queues: &[QueueKey],
        has_returned: bool,
    ) -> Result<(), ClientError> {
        match kind {
            RebalanceKind::Lost => Ok(()),
            RebalanceKind::Assigned => {
                self.shared.hold(queues, has_returned);
                Ok(())
            }
            RebalanceKind::Revoked => {
                let (shared, queues) = (self.shared.clone(), queues.to_vec());
                self.shared
                    .uninterrupted(async move { shared.give_back_revoked(&queues, has_returned).await })
                    .await
            }
        }
    }

    /// Prepares to leave the group for a topic: its queues wait to be revoked, and brokers are notified by
    /// [`Puller::unsubscribe`]. False: it is not subscribed to.
    pub fn retire(&self, topic: &str) -> bool {
        if !self.shared.heartbeat.membership.unsubscribe(topic) {
            return false;
        }
        let mut state = self.shared.state();
        state.retired.insert(topic.into());
        state.retire(|key| &*key.topic == topic);
        true
    }

    /// Prepares the end: all queues wait to be revoked, and no others are taken.
    pub fn retire_all(&self) {
        let mut state = self.shared.state();
        state.is_ending = true;
        state.retire(|_| true);
    }
}
